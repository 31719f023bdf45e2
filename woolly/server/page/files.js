// Text files that go along with the next question.

import { at, button, make } from "./dom.js";

const MOST_BYTES = 400_000;
let files = [];

// The files chosen so far; they go with one question.
export function take() {
  const taken = files;
  files = [];
  draw();
  return taken;
}

async function add(chosen) {
  const faults = [];
  for (const file of chosen) {
    const text = await read(file);
    if (text === null) faults.push(`${file.name} is not a text file of at most ${MOST_BYTES / 1000} kB.`);
    else files.push({ name: file.name, text });
  }
  draw(faults.join(" "));
}

async function read(file) {
  if (file.size > MOST_BYTES) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}

function draw(fault = "") {
  at("files").replaceChildren(...files.map(item));
  at("files-said").textContent = fault;
}

function item(file) {
  const made = make("li", "", file.name);
  const remove = () => {
    files = files.filter((one) => one !== file);
    draw();
    at("question").focus();
  };
  made.append(button("×", remove, `Leave out ${file.name}`));
  return made;
}

const input = at("file");
at("attach").addEventListener("click", () => input.click());
input.addEventListener("change", async () => {
  await add(input.files);
  input.value = "";
  at("question").focus();
  at("question").dispatchEvent(new Event("input"));
});

export const attached = () => files.length > 0;
