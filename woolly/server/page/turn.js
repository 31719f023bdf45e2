// One turn on the page: the question, then what the model thought, asked tools for and said, and what can be done with it.

import { button, field, make } from "./dom.js";
import { copier, render } from "./markdown.js";
import { picture } from "./speed.js";

// `acts` has what the buttons do: edit(turn, text), show(turn), again(turn), results(turn) and use(call, may).
export class TurnView {
  constructor(turn, branches, acts) {
    this.turn = turn;
    this.acts = acts;
    this.asked = turn.asked === null ? null : this.#question(branches);
    this.card = make("article", "said");
    this.card.setAttribute("aria-label", "Model");
    this.text = make("div", "text");
    this.text.dir = "auto";
    this.thought = make("div", "thought");
    this.thought.dir = "auto";
    this.thoughts = folded("Thoughts", this.thought);
    this.calls = make("div", "calls");
    this.wait = make("p", "wait");
    this.card.append(this.wait, this.thoughts, this.text, this.calls);
    this.draw();
    if (turn.note) {
      this.end({ text: turn.note });
      this.askForResults();
    }
  }

  get elements() {
    return this.asked ? [this.asked, this.card] : [this.card];
  }

  // While the answer is made: what is being waited for; nothing, once there is something to read.
  busy(text) {
    this.wait.textContent = text;
    this.wait.hidden = !text;
    this.card.toggleAttribute("aria-busy", true);
    this.card.querySelector("footer")?.remove();
  }

  draw() {
    const { turn } = this;
    this.thought.textContent = turn.thought; // as text, never as markup
    this.thoughts.hidden = !turn.thought;
    this.wait.hidden = !this.wait.textContent;
    render(this.text, turn.said);
    while (this.calls.children.length > turn.calls.length) this.calls.lastElementChild.remove();
    turn.calls.forEach((call, index) => {
      const box = this.calls.children[index] ?? this.calls.appendChild(callBox());
      box.querySelector("summary").textContent = `Calls ${call.name}`;
      box.querySelector("code").textContent = pretty(call.arguments);
      if (call.result !== undefined) box.querySelector(".result").textContent = call.result;
    });
  }

  // The line below an answer: how it ended, and what can be done with it.
  end({ text, failed = false, times = [] }) {
    const { turn, acts } = this;
    this.busy("");
    this.card.toggleAttribute("aria-busy", false);
    this.draw();
    const foot = make("footer", failed ? "failed" : "");
    foot.append(make("span", "note", text));
    const speed = picture(times);
    if (speed) foot.append(speed);
    if (turn.said) foot.append(copier(() => turn.said));
    const again = button(failed ? "Try again" : "Answer again", () => acts.again(turn));
    again.classList.add("again");
    foot.append(again);
    this.card.append(foot);
  }

  // Only the last answer can be asked again.
  settle() {
    this.card.querySelector("footer .again")?.remove();
    this.calls.querySelectorAll("form").forEach((form) => form.remove());
  }

  #question(branches) {
    const made = make("article", "asked");
    made.setAttribute("aria-label", "You");
    made.dir = "auto";
    const text = make("div", "", this.turn.asked);
    const foot = make("footer");
    const own = branches.indexOf(this.turn);
    if (branches.length > 1) {
      const before = button("‹", () => this.acts.show(branches[own - 1]), "Branch before");
      const after = button("›", () => this.acts.show(branches[own + 1]), "Next branch");
      before.disabled = own === 0;
      after.disabled = own === branches.length - 1;
      foot.append(before, make("span", "", `${own + 1} of ${branches.length}`), after);
    }
    foot.append(button("Edit", () => this.#edit(made)));
    made.append(text, ...this.turn.files.map((file) => folded(file.name, make("pre", "", file.text))), foot);
    return made;
  }

  #edit(article) {
    const form = make("form", "edit");
    const box = field("Your message, edited", this.turn.asked, 3);
    const leave = () => {
      form.replaceWith(...before);
      article.querySelector("footer button:last-child").focus();
    };
    const before = [...article.childNodes];
    const done = button("Ask", () => {});
    done.type = "submit";
    form.append(box, done, button("Cancel", leave));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (box.value.trim()) this.acts.edit(this.turn, box.value.trim());
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
    });
    article.replaceChildren(form);
    box.focus();
  }

  // A call of an MCP server is allowed or not; any other is made by whoever reads the page, who says what came of it.
  askForResults() {
    const open = this.turn.calls.filter((call) => call.result === undefined);
    if (!open.length) return;
    const form = make("form", "edit");
    const fields = open.map((call) => (call.server ? this.#permission(call) : field(`Result of ${call.name}`, "", 2)));
    const done = button("Go on with the result", () => {});
    done.type = "submit";
    form.append(...fields, done);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      done.disabled = true;
      for (const [index, call] of open.entries()) {
        if (call.server) await this.acts.use(call, fields[index].querySelector("input").checked);
        else call.result = fields[index].value;
      }
      form.remove();
      this.draw();
      this.acts.results(this.turn);
    });
    this.calls.append(form);
  }

  #permission(call) {
    const label = make("label");
    const box = make("input");
    box.type = "checkbox";
    box.checked = call.allowed;
    label.append(box, ` ${call.server} may run ${call.name}`);
    return label;
  }
}

function folded(summary, inner) {
  const made = make("details");
  made.append(make("summary", "", summary), inner);
  return made;
}

function callBox() {
  const given = make("pre");
  given.append(make("code"));
  const made = folded("", given);
  made.append(make("p", "result"));
  return made;
}

// Arguments with a line for each, once they are whole.
function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
