// A model's answer as elements. The text is a stranger's: it only ever becomes text, never HTML, and no address in it
// is ever followed or fetched. Read: code blocks, headings, lists, tables, quotes, rules, **bold**, *italic*, `code`.
// All else stays as it was written.

const FENCE = /^([ \t]*)(`{3,}|~{3,})[ \t]*([\w+#.-]{0,30})/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,})[ \t]*$/;
const ITEM = /^([ \t]*)(?:[-*+]|(\d{1,9})[.)])[ \t]+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ROW = /^ {0,3}\|?.*[^\\|]\|/; // of a table, if what follows the first is DASHES
const DASHES = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*/g;

const drawn = new WeakMap();

// Draws a text into a box. Blocks that have not changed since the last time stay, so a growing answer costs little.
export function render(box, text) {
  const before = drawn.get(box) ?? [];
  const after = blocks(text.split("\n"));
  const keys = after.map((block) => JSON.stringify(block));
  let same = 0;
  while (same < before.length && before[same] === keys[same]) same++;
  while (box.children.length > same) box.lastElementChild.remove();
  box.append(...after.slice(same).map(draw));
  drawn.set(box, keys);
}

function blocks(lines) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (!line.trim()) {
      at++;
    } else if ((match = FENCE.exec(line))) {
      const end = closing(lines, at + 1, match[2]);
      const inner = lines.slice(at + 1, end).map((row) => outdent(row, match[1].length));
      found.push({ kind: "code", language: match[3], text: inner.join("\n") });
      at = end + 1;
    } else if ((match = HEADING.exec(line))) {
      found.push({ kind: "heading", level: match[1].length, text: match[2] });
      at++;
    } else if (RULE.test(line)) {
      found.push({ kind: "rule" });
      at++;
    } else if (ITEM.test(line)) {
      const end = after(lines, at, (row, next) => ITEM.test(row) || (row.trim() ? !begins(row) : ITEM.test(next)));
      found.push({ kind: "list", items: items(lines.slice(at, end)) });
      at = end;
    } else if (QUOTE.test(line)) {
      const end = after(lines, at, (row) => QUOTE.test(row));
      found.push({ kind: "quote", text: lines.slice(at, end).map((row) => QUOTE.exec(row)[1]).join("\n") });
      at = end;
    } else if (isTable(line, lines[at + 1] ?? "")) {
      const end = after(lines, at + 2, (row) => row.includes("|") && !begins(row));
      found.push({ kind: "table", head: cells(line), rows: lines.slice(at + 2, end).map(cells) });
      at = end;
    } else {
      const end = after(lines, at + 1, (row, next) => row.trim() && !begins(row) && !isTable(row, next));
      found.push({ kind: "paragraph", text: lines.slice(at, end).join("\n") });
      at = end;
    }
  }
  return found;
}

const begins = (row) => [FENCE, HEADING, RULE, ITEM, QUOTE].some((pattern) => pattern.test(row));

const isTable = (row, next) => ROW.test(row) && next.includes("|") && DASHES.test(next);

// What stands between the bars of a row; a bar after a backslash is a sign like others.
const cells = (row) => row.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

function after(lines, at, belongs) {
  while (at < lines.length && belongs(lines[at], lines[at + 1] ?? "")) at++;
  return at;
}

function closing(lines, at, fence) {
  return after(lines, at, (row) => {
    const word = row.trim();
    return !(word.length >= fence.length && word === fence[0].repeat(word.length));
  });
}

function outdent(row, most) {
  let cut = 0;
  while (cut < most && (row[cut] === " " || row[cut] === "\t")) cut++;
  return row.slice(cut);
}

function items(rows) {
  const found = [];
  for (const row of rows) {
    const match = ITEM.exec(row);
    if (match) found.push({ indent: match[1].replaceAll("\t", "    ").length, number: match[2], text: match[3] });
    else if (row.trim()) found.at(-1).text += "\n" + row.trim(); // the item goes on in the next line
  }
  return found;
}

function draw(block) {
  switch (block.kind) {
    case "code":
      return code(block);
    case "list":
      return list(block.items);
    case "table":
      return table(block);
    case "rule":
      return document.createElement("hr");
    case "heading":
      return inline(document.createElement(`h${Math.min(block.level + 1, 6)}`), block.text);
    case "quote":
      return inline(document.createElement("blockquote"), block.text);
    default:
      return inline(document.createElement("p"), block.text);
  }
}

function code({ language, text }) {
  const figure = document.createElement("figure");
  const head = document.createElement("figcaption");
  const name = document.createElement("span");
  name.textContent = language || "text";
  head.append(name, copier(() => text));
  const pre = document.createElement("pre");
  pre.tabIndex = 0; // it scrolls, so the keyboard must reach it
  const inner = document.createElement("code");
  inner.textContent = text;
  pre.append(inner);
  figure.append(head, pre);
  return figure;
}

function table({ head, rows }) {
  const box = document.createElement("div");
  box.className = "table";
  box.tabIndex = 0; // it scrolls, as code does
  const made = document.createElement("table");
  const line = (place, kind, texts) => {
    const row = place.insertRow();
    for (let column = 0; column < head.length; column++) {
      const cell = inline(document.createElement(kind), texts[column] ?? "");
      if (kind === "th") cell.scope = "col";
      row.append(cell);
    }
  };
  line(made.createTHead(), "th", head);
  const body = made.createTBody();
  for (const row of rows) line(body, "td", row);
  box.append(made);
  return box;
}

function list(rows) {
  const open = (row) => {
    const made = document.createElement(row.number === undefined ? "ul" : "ol");
    if (row.number !== undefined) made.start = Number(row.number);
    return made;
  };
  const top = open(rows[0]);
  const stack = [{ indent: rows[0].indent, box: top }];
  for (const row of rows) {
    while (stack.length > 1 && row.indent < stack.at(-1).indent) stack.pop();
    const parent = stack.at(-1);
    if (row.indent >= parent.indent + 2 && parent.box.lastElementChild && stack.length < 8) {
      const inner = open(row);
      parent.box.lastElementChild.append(inner);
      stack.push({ indent: row.indent, box: inner });
    }
    const item = document.createElement("li");
    stack.at(-1).box.append(inline(item, row.text));
  }
  return top;
}

function inline(box, text) {
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    box.append(text.slice(from, match.index));
    from = match.index + match[0].length;
    const [, literal, bold, italic] = match;
    const made = document.createElement(literal !== undefined ? "code" : bold !== undefined ? "strong" : "em");
    if (literal !== undefined) made.textContent = literal;
    else inline(made, bold ?? italic);
    box.append(made);
  }
  box.append(text.slice(from));
  return box;
}

// A button that copies; nothing where the browser does not let a page copy (plain HTTP from another machine).
export function copier(text) {
  if (!navigator.clipboard) return "";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "small";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}
