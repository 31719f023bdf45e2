// Tools of MCP servers that the server has for this page. A server counts once its box in the settings is ticked; each call is
// allowed by whoever reads the page, or by the server's settings. The server itself makes the call.

import { at, make, recall, remember } from "./dom.js";
import { callTool, mcpServers } from "./speak.js";

const USED = "woolly.mcp"; // names of the servers that are ticked
const ROUNDS = 8; // times that results go back by themselves before somebody has to look

let servers = [];

function used() {
  try {
    const names = JSON.parse(recall(USED));
    return Array.isArray(names) ? names : [];
  } catch {
    return [];
  }
}

// Asked for when the settings are opened, and before the first question if a box is ticked: it may start programs.
export async function look() {
  try {
    servers = await mcpServers();
  } catch {
    servers = [];
  }
}

export async function drawTools() {
  await look();
  at("mcp").hidden = servers.length === 0;
  at("mcp-list").replaceChildren(...servers.map(row));
}

function row(server) {
  const label = make("label");
  const box = make("input");
  box.type = "checkbox";
  box.checked = used().includes(server.name);
  box.addEventListener("change", () => {
    const others = used().filter((name) => name !== server.name);
    remember(USED, JSON.stringify(box.checked ? [...others, server.name] : others));
  });
  label.append(box, ` ${server.name}: ${server.error ?? server.tools.map((tool) => tool.name).join(", ")}`);
  return label;
}

// The tools of the ticked servers, each with its server; a name that two have is told apart by it.
async function all() {
  const names = used();
  if (!names.length) return [];
  if (!servers.length) await look();
  const found = servers.filter((one) => names.includes(one.name)).flatMap((one) => one.tools.map((tool) => ({ ...tool, server: one.name })));
  const twice = (name) => found.filter((tool) => tool.name === name).length > 1;
  return found.map((tool) => ({ ...tool, known: twice(tool.name) ? `${tool.server}.${tool.name}` : tool.name }));
}

// With those that were typed into the settings, as a request has them.
export async function offered(typed = []) {
  const made = (await all()).map(({ known, description, input_schema: parameters }) => ({ type: "function", function: { name: known, description, parameters } }));
  return typed.length || made.length ? [...typed, ...made] : undefined;
}

// Notes at each call whose tool it is; a call without a server is for whoever reads the page.
export async function assign(calls) {
  const tools = await all();
  for (const call of calls) {
    const tool = tools.find((one) => one.known === call.name);
    if (tool) Object.assign(call, { server: tool.server, tool: tool.name, allowed: tool.allowed });
  }
}

// Whether all calls of a turn are made without a word, after so many turns that were.
export const goesOn = (calls, rounds) => rounds < ROUNDS && calls.length > 0 && calls.every((call) => call.server && call.allowed);

// Makes a call, or does not; the result is what the model is told.
export async function use(call, may) {
  if (!may) {
    call.result = "the user did not allow this call";
    return;
  }
  try {
    call.result = await callTool(call.server, call.tool, JSON.parse(call.arguments || "{}"));
  } catch (error) {
    call.result = `error: ${error.message || "the server could not be reached"}`;
  }
}
