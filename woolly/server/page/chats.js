// The chats that this browser keeps. Each is a tree of turns, of which one path is shown.
//
// A turn is a question and what came of it: {id, parent, asked, files, said, thought, calls, note}. `id` is its place in the list,
// `parent` that of the turn before it, or null. To edit a question, or to ask again, makes a sibling: nothing that was said is
// lost. `last` is the turn that the shown path ends with. A turn without a question goes on after the results of its calls.
// A chat that the server keeps too has the id of its `session`; there only the end can grow.

import { recall, remember } from "./dom.js";

const PREFIX = "woolly.chat.";
const MOST = 100; // chats; the one that was changed longest ago goes first

export function begin() {
  return { id: `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`, changed: 0, turns: [], last: null };
}

export function title(chat) {
  const first = chat.turns[0];
  return (first?.asked || first?.files[0]?.name || "").trim().split("\n")[0].slice(0, 80);
}

// All of them, the one that was changed last first.
export function all() {
  let keys = [];
  try {
    keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
  } catch {
    // nothing is kept here
  }
  const chats = keys.map((key) => read(key)).filter((chat) => chat !== null);
  return chats.sort((a, b) => b.changed - a.changed);
}

export const open = (id) => read(PREFIX + id);

function read(key) {
  try {
    const chat = JSON.parse(recall(key));
    return Array.isArray(chat?.turns) && chat.turns.length ? chat : null;
  } catch {
    return null;
  }
}

// Keeps a chat; where there is no room, older ones are let go.
export function keep(chat) {
  chat.changed = Date.now();
  const others = all().filter((one) => one.id !== chat.id);
  for (const old of others.splice(MOST - 1)) forget(old.id);
  while (!remember(PREFIX + chat.id, JSON.stringify(chat)) && others.length) forget(others.pop().id);
}

export function forget(id) {
  remember(PREFIX + id, null);
}

// The turns that are shown, from the first to the last.
export function path(chat) {
  const turns = [];
  for (let id = chat.last; id !== null; id = chat.turns[id].parent) turns.unshift(chat.turns[id]);
  return turns;
}

// A new turn after another one, or at the beginning; the shown path ends with it.
export function grow(chat, parent, asked, files) {
  const turn = { id: chat.turns.length, parent, asked, files, said: "", thought: "", calls: [], note: "" };
  chat.turns.push(turn);
  chat.last = turn.id;
  return turn;
}

export function siblings(chat, turn) {
  return chat.turns.filter((one) => one.parent === turn.parent);
}

// Shows the branch of a turn, as far as it goes: at each fork the newest.
export function show(chat, turn) {
  for (let next = turn; next; next = chat.turns.findLast((one) => one.parent === chat.last)) chat.last = next.id;
}

// What the model is told before and with a turn: a question that got no answer is left out, unless it is the one being asked.
export function history(chat, turn) {
  const messages = [];
  for (const one of path(chat)) {
    if (one === turn) break;
    if (!one.said && !one.calls.length) continue;
    if (one.asked !== null) messages.push(question(one));
    messages.push(answer(one), ...one.calls.filter((call) => call.result !== undefined).map(result));
  }
  return turn.asked === null ? messages : [...messages, question(turn)];
}

// What is new with a turn, for a server that keeps the rest: its question, or the results of the calls before it.
export function news(chat, turn) {
  if (turn.asked !== null) return [question(turn)];
  return chat.turns[turn.parent].calls.filter((call) => call.result !== undefined).map(result);
}

// A chat as the server has kept it: questions with their answers.
export function fromHistory(session, messages) {
  const chat = { ...begin(), session };
  for (const { role, content } of messages) {
    if (role === "user") grow(chat, chat.last, content, []);
    else if (role === "assistant" && chat.last !== null) chat.turns[chat.last].said += content;
  }
  return chat;
}

const question = (turn) => ({ role: "user", content: [turn.asked, ...turn.files.map(quoted)].filter(Boolean).join("\n\n") });
const result = (call) => ({ role: "tool", tool_call_id: call.id, content: call.result });

function answer(turn) {
  const said = { role: "assistant", content: turn.said };
  if (turn.calls.length) {
    said.tool_calls = turn.calls.map(({ id, name, arguments: given }) => ({ id, type: "function", function: { name, arguments: given } }));
  }
  return said;
}

// A file between fences that do not occur in it.
function quoted({ name, text }) {
  const longest = Math.max(2, ...(text.match(/`{3,}/g) ?? []).map((fence) => fence.length));
  const fence = "`".repeat(longest + 1);
  return `File ${name}:\n${fence}\n${text}\n${fence}`;
}
