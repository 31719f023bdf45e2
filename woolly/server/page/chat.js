// The chat: turns of a question and its answer, one answer at a time.

import { CutOff, Refused, Unreachable, alive, answer, models, useKey } from "./speak.js";
import { copier, render } from "./markdown.js";

const MODEL = "woolly.model";
const AGAIN_MS = 2000; // between two looks for a server that is away
const SAMPLING = { temperature: 0.7, top_p: 0.9, top_k: 50 }; // small models wander at OpenAI's default of 1

const at = (id) => document.getElementById(id);
const [log, question, picker, notice] = ["log", "question", "model", "notice"].map(at);

let turns = []; // {asked, said, card}
let running = null; // {stop, turn} while an answer is written
let looking = false; // while the server is away
let waiting = null; // the turn that a key will set going
let known = []; // the server's models

function make(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function button(text, act) {
  const made = make("button", "small", text);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

// Tells who cannot see the page; what can be seen says it too.
function say(text) {
  at("said").textContent = text;
}

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
  const chosen = picker.value && !picker.disabled ? picker.value : recall();
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
  const model = known.find((one) => one.id === picker.value);
  picker.title = model?.description ?? "";
  at("about").textContent = model
    ? `${model.id} on your own machine answers.`
    : "There is no model yet: put a GGUF file into the model folder, or start “woolly serve smollm2”.";
}

function recall() {
  try {
    return localStorage.getItem(MODEL);
  } catch {
    return null;
  }
}

picker.addEventListener("change", () => {
  try {
    localStorage.setItem(MODEL, picker.value);
  } catch {
    // then the choice holds until the page is closed
  }
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
  if (waiting && waiting === turns.at(-1)) run(waiting);
  waiting = null;
});

// --- turns -----------------------------------------------------------------------------------------------------------

function ask(text) {
  at("empty").hidden = true;
  const asked = make("article", "asked");
  asked.setAttribute("aria-label", "You");
  asked.dir = "auto";
  asked.textContent = text;
  const card = make("article", "said");
  card.setAttribute("aria-label", "Model");
  log.append(asked, card);
  const turn = { asked: text, said: "", card };
  for (const old of turns) old.card.querySelector("footer .again")?.remove(); // only the last answer can be asked again
  turns.push(turn);
  run(turn);
}

// What the model is told: a question that got no answer is left out, unless it is the one being asked.
function history(turn) {
  const messages = [];
  for (const one of turns) {
    if (one === turn) break;
    if (one.said) messages.push({ role: "user", content: one.asked }, { role: "assistant", content: one.said });
  }
  return [...messages, { role: "user", content: turn.asked }];
}

async function run(turn) {
  if (running) return;
  const stop = new AbortController();
  running = { stop, turn };
  turn.said = "";
  const text = make("div", "text");
  text.dir = "auto";
  const wait = make("p", "wait", waitText());
  const thought = make("div", "thought");
  thought.dir = "auto";
  const folded = make("details");
  folded.append(make("summary", "", "Thoughts"), thought);
  turn.card.replaceChildren(wait, text);
  turn.card.setAttribute("aria-busy", "true");
  show();
  toEnd();

  let usage = null;
  let reason = "";
  let failed = null;
  let frame = 0;
  const begun = performance.now();
  let first = 0;
  const draw = () => {
    frame = 0;
    const follow = atEnd();
    render(text, turn.said);
    if (follow) toEnd();
  };
  try {
    const own = known.find((model) => model.id === picker.value)?.sampling; // what the model's file recommends
    const asked = { model: picker.value || undefined, messages: history(turn), ...SAMPLING, ...own };
    for await (const piece of answer(asked, stop.signal)) {
      if (piece.thought) {
        first ||= performance.now();
        thought.append(piece.thought); // as text, never as markup
        if (!folded.isConnected) text.before(folded);
        wait.textContent = "Thinking";
      }
      if (piece.text) {
        first ||= performance.now();
        turn.said += piece.text;
        wait.remove();
        frame ||= requestAnimationFrame(draw);
      }
      if (piece.reason) reason = piece.reason;
      if (piece.usage) usage = piece.usage;
    }
  } catch (error) {
    failed = error;
  }
  cancelAnimationFrame(frame);
  wait.remove();
  draw();
  running = null;
  turn.card.removeAttribute("aria-busy");
  if (turns.includes(turn)) finish(turn, { failed, stopped: stop.signal.aborted, usage, reason, first, begun });
  show();
}

function waitText() {
  const model = known.find((one) => one.id === picker.value);
  return model && !model.loaded ? `Loading ${model.id}` : "Reading";
}

// The line below an answer: how it ended, and what can be done with it.
function finish(turn, { failed, stopped, usage, reason, first, begun }) {
  const foot = make("footer");
  const note = make("span", "note");
  foot.append(note);
  if (stopped) {
    note.textContent = "Stopped.";
  } else if (failed) {
    foot.className = "failed";
    note.textContent = sentence(failed, turn);
    if (failed.status === 401) {
      waiting = turn;
      askForKey();
    } else if (!failed.status) {
      look(); // it did not refuse: it went away
    }
  } else {
    note.textContent = figures(usage, reason, first, begun);
    if (!known.find((one) => one.id === picker.value)?.loaded) refresh();
  }
  if (turn.said) foot.append(copier(() => turn.said));
  const again = button(failed && !stopped ? "Try again" : "Answer again", () => run(turn));
  again.classList.add("again");
  foot.append(again);
  turn.card.append(foot);
  say(failed || stopped ? note.textContent : "The answer is complete.");
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

function figures(usage, reason, first, begun) {
  const words = [];
  if (reason === "length") words.push("The answer reached the limit of its length.");
  const count = usage?.completion_tokens ?? 0;
  if (count && first) {
    const seconds = (performance.now() - first) / 1000;
    words.push(`${count} tokens,`);
    if (count > 1 && seconds > 0.01) words.push(`${((count - 1) / seconds).toFixed(1)} a second,`);
    words.push(`the first after ${((first - begun) / 1000).toFixed(2)} s`);
  }
  return words.join(" ");
}

// --- the form --------------------------------------------------------------------------------------------------------

function show() {
  at("send").hidden = running !== null;
  at("stop").hidden = running === null;
  at("send").disabled = !question.value.trim();
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
  if (!text || running) return;
  question.value = "";
  ask(text);
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
  if (event.key === "Escape" && running) stop();
});
at("new").addEventListener("click", () => {
  stop();
  turns = [];
  waiting = null;
  log.querySelectorAll("article").forEach((card) => card.remove());
  at("empty").hidden = false;
  say("A new chat.");
  question.focus();
});
at("ideas").addEventListener("click", (event) => {
  const idea = event.target.closest("button");
  if (!idea || running) return;
  ask(idea.textContent);
  if (matchMedia("(hover: hover)").matches) question.focus(); // on a phone that would bring up the keyboard
});
addEventListener("focus", () => {
  if (!looking && !running && at("keys").hidden) refresh();
});

show();
refresh();
