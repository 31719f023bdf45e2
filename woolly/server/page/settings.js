// What is asked along with every question: kept in this browser, changed in a dialog. An empty field is the server's own way.

import { at, recall, remember } from "./dom.js";

const KEPT = "woolly.config.rows";
const FIELDS = ["system", "temperature", "seed", "tokens", "schema", "tools"];
const dialog = at("settings");
const form = dialog.querySelector("form");
const input = (name) => form.elements[name];

let values = kept();

function kept() {
  try {
    const found = JSON.parse(recall(KEPT)) ?? {};
    return Object.fromEntries(FIELDS.map((name) => [name, String(found[name] ?? "")]));
  } catch {
    return Object.fromEntries(FIELDS.map((name) => [name, ""]));
  }
}

// JSON as it is typed: what is wrong with it, or nothing.
function wrong(name) {
  const text = input(name).value.trim();
  if (!text) return "";
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
  if (name === "schema") return value && typeof value === "object" && !Array.isArray(value) ? "" : "A JSON schema is an object: {…}";
  return Array.isArray(value) ? "" : "Tools are a list: […]";
}

function check() {
  for (const name of ["schema", "tools"]) input(name).setCustomValidity(wrong(name));
}

export function openSettings() {
  for (const name of FIELDS) input(name).value = values[name];
  check();
  dialog.showModal();
}

// The fields of a request, in OpenAI's words.
export function fields() {
  const asked = {};
  if (values.temperature) asked.temperature = Number(values.temperature);
  if (values.seed) asked.seed = Number(values.seed);
  if (values.tokens) asked.max_tokens = Number(values.tokens);
  if (values.schema) {
    asked.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(values.schema), strict: true } };
  }
  if (values.tools) asked.tools = JSON.parse(values.tools).map((tool) => (tool.type ? tool : { type: "function", function: tool }));
  return asked;
}

export const system = () => (values.system.trim() ? [{ role: "system", content: values.system }] : []);

form.addEventListener("input", check);
form.addEventListener("submit", () => {
  values = Object.fromEntries(FIELDS.map((name) => [name, input(name).value.trim()]));
  remember(KEPT, JSON.stringify(values));
});
at("settings-clear").addEventListener("click", () => {
  for (const name of FIELDS) input(name).value = "";
  check();
});
at("settings-cancel").addEventListener("click", () => dialog.close());
