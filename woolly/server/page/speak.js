// Talks to the server: which models, tools and kept chats there are, and one answer as it is written, in OpenAI's dialect or,
// in a chat that the server keeps, in its own.
// Paths are relative, so the page also works behind a proxy that serves it under a folder.

import { recall, remember } from "./dom.js";

const KEY = "woolly.key"; // for this tab alone
const SILENCE_MS = 60_000; // the server sends a comment every 15 s: after a minute of nothing nobody is there

const AGAIN = 6; // times that a lost answer is asked for again,
const AGAIN_MS = 500; // after so long each

let key = recall(KEY, sessionStorage) ?? "";

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}
export class Unreachable extends Error {}
export class CutOff extends Error {}

export function useKey(text) {
  if (!/^[\x21-\x7e]+$/.test(text)) return false;
  key = text;
  remember(KEY, text, sessionStorage);
  return true;
}

async function call(path, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
  if (response.ok) return response;
  let message = "";
  try {
    message = (await response.json()).error.message;
  } catch {
    if ([502, 503, 504].includes(response.status)) throw new Unreachable(); // a proxy speaks, the server does not
  }
  throw new Refused(String(message || `The server answered with status ${response.status}.`), response.status);
}

export async function alive() {
  try {
    await call("health/live", { signal: AbortSignal.timeout(3000) });
    return true;
  } catch (error) {
    return error instanceof Refused;
  }
}

// Woolly's own list: OpenAI's does not say which models are loaded, and which can chat.
export async function models() {
  const body = await (await call("api/v1/models")).json();
  return body.data ?? body;
}

const json = (method, body) => ({ method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const mcpServers = async () => (await call("api/v1/mcp/servers")).json();

// The text of a result; what a tool calls an error is thrown.
export async function callTool(server, tool, given) {
  const path = ["api/v1/mcp/servers", encodeURIComponent(server), "tools", encodeURIComponent(tool)].join("/");
  const said = await (await call(path, json("POST", { arguments: given }))).json();
  if (!said.success) throw new Error(said.error);
  return said.result.content.map((part) => part.text).join("\n");
}

// Conversations that the server keeps: all of ours, what was said in one, a new one, its title, its end.
export const sessions = async () => (await call("api/v1/sessions")).json();
export const said = async (id) => (await (await call(`api/v1/sessions/${id}/history`)).json()).messages;
export const beginSession = async (model) => (await (await call("api/v1/sessions", json("POST", { model }))).json()).session_id;
export const nameSession = (id, title) => call(`api/v1/sessions/${id}`, json("PATCH", { metadata: { title } }));
export const endSession = (id) => call(`api/v1/sessions/${id}`, { method: "DELETE" });

// Yields {thought}, {text}, {calls}, {reason} and {usage}. Ends well only after the server has said that it is done.
// A connection that breaks is no end: the same answer is asked for again, by its seed, from the last event on.
export async function* answer(asked, signal) {
  const again = {};
  let last = 0;
  for (let lost = 0; ; ) {
    try {
      const response = await call(asked.session_id ? "api/v1/inference/chat" : "v1/chat/completions", {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "text/event-stream", "Last-Event-ID": String(last), ...again },
        body: JSON.stringify({ ...asked, stream: true, stream_options: { include_usage: true } }),
        signal,
      });
      for (const name of ["X-Woolly-Seed", "X-Request-Id"]) {
        if (response.headers.has(name)) again[name] = response.headers.get(name);
      }
      for await (const { data, number } of events(response.body)) {
        if (data === "[DONE]") return;
        yield* parts(data);
        last = number || last;
        lost = 0;
      }
      throw new CutOff();
    } catch (error) {
      const broken = error instanceof CutOff || (error instanceof Unreachable && lost);
      if (!broken || !last || !again["X-Woolly-Seed"] || lost === AGAIN) throw lost ? new CutOff() : error;
      lost += 1;
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      signal?.throwIfAborted();
    }
  }
}

function* parts(data) {
  let said;
  try {
    said = JSON.parse(data);
  } catch {
    throw new CutOff();
  }
  if (said.error) throw new Refused(String(said.error.message), 0);
  const choice = said.choices?.[0];
  if (choice?.delta?.reasoning_content) yield { thought: choice.delta.reasoning_content };
  if (choice?.delta?.content) yield { text: choice.delta.content };
  if (choice?.delta?.tool_calls) yield { calls: choice.delta.tool_calls };
  if (choice?.finish_reason) yield { reason: choice.finish_reason };
  if (said.usage) yield { usage: said.usage };
}

// The data and the number of each server-sent event; comments keep the connection alive and are skipped.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let number = 0;
  try {
    while (true) {
      const timer = setTimeout(() => reader.cancel().catch(() => {}), SILENCE_MS);
      let piece;
      try {
        piece = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new CutOff();
      } finally {
        clearTimeout(timer);
      }
      if (piece.done) return;
      const lines = (rest + piece.value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("id:")) number = Number(line.slice(3));
        if (line.startsWith("data:")) yield { data: line.slice(5).trim(), number };
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // leaving early closes the connection, and that stops the model
  }
}
