// Small pieces of the document. Text only ever becomes text.

export const at = (id) => document.getElementById(id);

export function make(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function button(text, act, label) {
  const made = make("button", "small", text);
  made.type = "button";
  if (label) made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

// A text field of several lines with its label, which only a screen reader is told.
export function field(label, text, rows) {
  const made = make("textarea", "field");
  made.setAttribute("aria-label", label);
  made.placeholder = label;
  made.value = text;
  made.rows = rows;
  return made;
}

// Tells who cannot see the page; what can be seen says it too.
export function say(text) {
  at("said").textContent = text;
}

// What a browser keeps for this page. One that keeps nothing still shows the page, until it is closed.
export function recall(key, where = localStorage) {
  try {
    return where.getItem(key);
  } catch {
    return null;
  }
}

export function remember(key, value, where = localStorage) {
  try {
    if (value === null) where.removeItem(key);
    else where.setItem(key, value);
    return true;
  } catch {
    return false;
  }
}
