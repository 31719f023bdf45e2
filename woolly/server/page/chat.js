// The chat: one of several that this browser keeps, shown turn by turn, one answer at a time.

import { begin, forget, fromHistory, grow, history, keep, news, open, all, path, show as showBranch, siblings, title } from "./chats.js";
import { at, button, make, recall, remember, say } from "./dom.js";
import { attached, take } from "./files.js";
import { fields, openSettings, system } from "./settings.js";
import { CutOff, Refused, Unreachable, alive, answer, beginSession, endSession, models, nameSession, said, sessions, useKey } from "./speak.js";
import { assign, drawTools, goesOn, offered, use } from "./tools.js";
import { TurnView } from "./turn.js";

const MODEL = "woolly.model";
const OPEN = "woolly.open"; // the chat that this tab shows
const AGAIN_MS = 2000; // between two looks for a server that is away

const [log, question, picker, notice] = ["log", "question", "model", "notice"].map(at);

let chat = begin();
let views = []; // of the turns that are shown
let running = null; // {stop, view} while an answer is written
let looking = false; // while the server is away
let waiting = null; // the view of the turn that a key will set going
let known = []; // the server's models
let used = 0; // tokens of the context, by the last answer

const current = () => known.find((one) => one.id === picker.value);

// --- models ----------------------------------------------------------------------------------------------------------

async function refresh() {
  try {
    known = await models();
    showModels();
    at("keys").hidden = true;
    notice.hidden = !looking;
    return true;
  } catch (error) {
    trouble(error);
    return false;
  }
}

function showModels() {
  const chosen = picker.value && !picker.disabled ? picker.value : recall(MODEL);
  const talkers = known.filter((model) => model.features.chat);
  picker.replaceChildren(
    ...group("Loaded", talkers.filter((model) => model.loaded)),
    ...group("Loaded when asked", talkers.filter((model) => !model.loaded)),
    ...group("Without a chat template", known.filter((model) => !talkers.includes(model)), true),
  );
  picker.disabled = talkers.length === 0;
  if (talkers.length) picker.value = (talkers.find((model) => model.id === chosen) ?? talkers[0]).id;
  else picker.append(make("option", "", "No model"));
  describe();
}

function group(label, members, disabled = false) {
  if (!members.length) return [];
  const made = document.createElement("optgroup");
  made.label = label;
  made.disabled = disabled;
  made.append(...members.map((model) => make("option", "", model.id)));
  return [made];
}

function describe() {
  const model = current();
  picker.title = model?.description ?? "";
  at("about").textContent = model
    ? `${model.id} on your own machine answers.`
    : "There is no model yet: put a GGUF file into the model folder, or start “woolly serve smollm2”.";
  showContext();
}

picker.addEventListener("change", () => {
  remember(MODEL, picker.value);
  describe();
});

// --- trouble ---------------------------------------------------------------------------------------------------------

// Shows what stands in the way of everything: a server that is away, or one that asks for a key.
function trouble(error) {
  if (error instanceof Unreachable) return look();
  if (error instanceof Refused && error.status === 401) return askForKey();
  notice.textContent = sentence(error);
  notice.hidden = false;
}

async function look() {
  if (looking) return;
  looking = true;
  if (!(await alive())) {
    notice.textContent = "Cannot reach the server. Is it running? This page looks for it every two seconds.";
    notice.hidden = false;
    do {
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    } while (!(await alive()));
    say("The server is back.");
  }
  looking = false;
  await refresh();
}

function askForKey() {
  const again = !at("keys").hidden;
  at("keys").hidden = false;
  at("key-said").textContent = again ? "The server did not accept that key." : "";
  at("key").focus();
}

at("keys").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!useKey(at("key").value.trim())) {
    at("key-said").textContent = "A key is made of letters, digits and signs, without spaces.";
    return;
  }
  if (!(await refresh())) return;
  at("key").value = "";
  question.focus();
  if (waiting && waiting === views.at(-1)) run(waiting);
  waiting = null;
});

// --- turns -----------------------------------------------------------------------------------------------------------

const acts = {
  edit: (turn, text) => ask(text, turn.files, turn.parent),
  show: (turn) => {
    if (running) return;
    showBranch(chat, turn);
    keep(chat);
    drawChat();
  },
  again: (turn) => {
    if (running) return;
    if (turn.said || turn.calls.length) ask(turn.asked, turn.files, turn.parent);
    else run(views.at(-1));
  },
  results: (turn) => ask(null, [], turn.id),
  use,
};

// Asks after the turn `parent`, or at the beginning: a sibling of what was asked there before.
function ask(text, files, parent) {
  if (running) return;
  if (chat.session && parent !== chat.last) {
    chat.session = null; // what the server keeps only grows at its end
    say("This branch is kept in this browser alone.");
  }
  grow(chat, parent, text, files);
  drawChat();
  run(views.at(-1));
}

function drawChat() {
  log.querySelectorAll("article").forEach((card) => card.remove());
  views = path(chat).map((turn) => new TurnView(turn, siblings(chat, turn), acts));
  for (const view of views.slice(0, -1)) view.settle();
  log.append(...views.flatMap((view) => view.elements));
  at("empty").hidden = views.length > 0;
  toEnd();
}

async function run(view) {
  if (running) return;
  const { turn } = view;
  const within = chat;
  const stop = new AbortController();
  running = { stop, view };
  Object.assign(turn, { said: "", thought: "", calls: [], note: "" });
  view.busy(waitText());
  view.draw();
  show();
  toEnd();

  let usage = null;
  let reason = "";
  let failed = null;
  let frame = 0;
  const begun = performance.now();
  const times = [];
  const draw = () => {
    frame = 0;
    const follow = atEnd();
    view.draw();
    if (follow) toEnd();
  };
  try {
    for await (const piece of answer(await request(turn), stop.signal)) {
      if (piece.thought || piece.text || piece.calls) {
        times.push(performance.now());
        view.busy(piece.thought ? "Thinking" : "");
        turn.thought += piece.thought ?? "";
        turn.said += piece.text ?? "";
        for (const call of piece.calls ?? []) addCall(turn.calls, call);
        frame ||= requestAnimationFrame(draw);
      }
      if (piece.reason) reason = piece.reason;
      if (piece.usage) usage = piece.usage;
    }
  } catch (error) {
    failed = error;
  }
  cancelAnimationFrame(frame);
  running = null;
  const stopped = stop.signal.aborted;
  turn.note = stopped ? "Stopped." : failed ? sentence(failed, turn) : figures(usage, reason, times, begun);
  if (within.session && turn.id === 0 && turn.said) nameSession(within.session, title(within)).catch(() => {});
  if (within.session && failed?.status === 404) within.session = null; // it has gone there, but not here
  keep(within);
  if (within === chat) finish(view, { failed: stopped ? null : failed, usage, times });
  show();
}

async function request(turn) {
  const asked = { model: picker.value || undefined, ...fields() };
  if (!chat.session) return { ...asked, tools: await offered(asked.tools), messages: [...system(), ...history(chat, turn)] };
  const first = turn.parent === null ? system() : [];
  return { ...asked, tools: undefined, session_id: chat.session, messages: [...first, ...news(chat, turn)] };
}

// After an answer that asks for tools: whose they are; calls that need no word are made, and the answer goes on.
async function useTools(view) {
  const { turn } = view;
  await assign(turn.calls);
  let rounds = 0;
  for (let one = turn; one && one.asked === null; one = chat.turns[one.parent]) rounds += 1;
  if (!goesOn(turn.calls, rounds)) {
    const follow = atEnd(200);
    view.askForResults();
    if (follow) toEnd();
    return;
  }
  for (const call of turn.calls) await use(call, true);
  view.draw();
  acts.results(turn);
}

// Calls come in pieces: first the name, then the arguments bit by bit.
function addCall(calls, { index, id, function: given }) {
  calls[index] ??= { id, name: "", arguments: "" };
  calls[index].name += given?.name ?? "";
  calls[index].arguments += given?.arguments ?? "";
}

function waitText() {
  const model = current();
  return model && !model.loaded ? `Loading ${model.id}` : "Reading";
}

function finish(view, { failed, usage, times }) {
  view.end({ text: view.turn.note, failed: failed !== null, times });
  if (failed?.status === 401) {
    waiting = view;
    askForKey();
  } else if (failed && !failed.status) {
    look(); // it did not refuse: it went away
  } else if (!failed) {
    used = usage?.total_tokens ?? used;
    showContext();
    if (!current()?.loaded) refresh();
  }
  if (view.turn.calls.length && !failed) usage ? useTools(view) : view.askForResults();
  say(view.turn.said && !failed && usage ? "The answer is complete." : view.turn.note);
  if (atEnd(200)) toEnd();
}

function sentence(error, turn) {
  if (error instanceof Unreachable) return "The server could not be reached.";
  if (error instanceof CutOff && turn?.said) return "The answer was cut off.";
  if (error instanceof CutOff) return "The server went away before it answered.";
  if (error.status === 401) return "A key is needed.";
  if (!(error instanceof Refused)) return "Something went wrong in this page.";
  return error.message.charAt(0).toUpperCase() + error.message.slice(1);
}

function figures(usage, reason, times, begun) {
  const words = [];
  if (reason === "length") words.push("The answer reached the limit of its length.");
  const count = usage?.completion_tokens ?? 0;
  if (count && times.length) {
    const seconds = (performance.now() - times[0]) / 1000;
    words.push(`${count} tokens,`);
    if (count > 1 && seconds > 0.01) words.push(`${((count - 1) / seconds).toFixed(1)} a second,`);
    words.push(`the first after ${((times[0] - begun) / 1000).toFixed(2)} s`);
  }
  return words.join(" ");
}

// How much of the model's context the chat takes.
function showContext() {
  const most = current()?.context_length ?? 0;
  at("context").hidden = !used || !most;
  at("context-used").max = most;
  at("context-used").value = used;
  at("context-said").textContent = `${used.toLocaleString("en")} of ${most.toLocaleString("en")} tokens of the context`;
}

// --- chats -----------------------------------------------------------------------------------------------------------

function openChat(other) {
  running?.stop.abort();
  chat = other;
  waiting = null;
  used = 0;
  remember(OPEN, chat.id, sessionStorage);
  drawChat();
  showContext();
}

function showChats() {
  const kept = all();
  at("chat-list").replaceChildren(...kept.map(chatItem));
  at("no-chats").hidden = kept.length > 0;
  showSessions(kept);
  if (!at("chats").open) at("chats").showModal();
}

// The chats that the server keeps and this browser does not have.
async function showSessions(kept) {
  let rows = [];
  try {
    rows = (await sessions()).filter((one) => one.message_count && !kept.some((chat) => chat.session === one.id));
  } catch {
    // an older server, or none
  }
  at("on-server").hidden = rows.length === 0;
  at("session-list").replaceChildren(...rows.map(sessionItem));
}

function sessionItem(one) {
  const name = String(one.metadata.title ?? `A chat of ${one.created_at.slice(0, 10)}`);
  const item = make("li");
  const opener = button(name, async () => {
    openChat(fromHistory(one.id, await said(one.id)));
    keep(chat);
    at("chats").close();
    question.focus();
  });
  const remove = async () => {
    await endSession(one.id);
    showChats();
  };
  item.append(opener, button("×", remove, `Delete ${name} on the server`));
  return item;
}

async function newOnServer() {
  try {
    openChat({ ...begin(), session: await beginSession(picker.value || undefined) });
    at("chats").close();
    say("A new chat, which the server keeps.");
    question.focus();
  } catch (error) {
    trouble(error);
  }
}

function chatItem(one) {
  const item = make("li");
  const opener = button(title(one), () => {
    at("chats").close();
    openChat(one.id === chat.id ? chat : one);
    question.focus();
  });
  if (one.id === chat.id) opener.setAttribute("aria-current", "true");
  const remove = () => {
    forget(one.id);
    if (one.id === chat.id) openChat(begin());
    showChats();
  };
  item.append(opener, button("×", remove, `Delete ${title(one)}`));
  return item;
}

// --- the form --------------------------------------------------------------------------------------------------------

function show() {
  at("send").hidden = running !== null;
  at("stop").hidden = running === null;
  at("send").disabled = !question.value.trim() && !attached();
  const follow = atEnd();
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight}px`; // the style sheet sets the most
  if (follow) toEnd();
}

const atEnd = (slack = 48) => log.scrollHeight - log.scrollTop - log.clientHeight < slack;
const toEnd = () => (log.scrollTop = log.scrollHeight);
const stop = () => running?.stop.abort();

function submit() {
  const text = question.value.trim();
  if ((!text && !attached()) || running) return;
  question.value = "";
  ask(text, take(), chat.last);
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
question.addEventListener("input", show);
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey) return;
  if (event.isComposing || event.keyCode === 229) return; // this Enter ends a sign that is being composed
  event.preventDefault();
  submit();
});
at("stop").addEventListener("click", () => {
  stop();
  question.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !document.querySelector("dialog[open]")) stop();
});
at("new").addEventListener("click", () => {
  openChat(begin());
  say("A new chat.");
  question.focus();
});
at("open-chats").addEventListener("click", showChats);
at("new-on-server").addEventListener("click", newOnServer);
at("open-settings").addEventListener("click", () => {
  openSettings();
  drawTools();
});
at("chats-close").addEventListener("click", () => at("chats").close());
at("ideas").addEventListener("click", (event) => {
  const idea = event.target.closest("button");
  if (!idea || running) return;
  ask(idea.textContent, [], chat.last);
  if (matchMedia("(hover: hover)").matches) question.focus(); // on a phone that would bring up the keyboard
});
addEventListener("focus", () => {
  if (!looking && !running && at("keys").hidden) refresh();
});

openChat(open(recall(OPEN, sessionStorage)) ?? begin());
show();
refresh();
