// The way of a message, hop by hop; what is stored of it; what goes wrong, and what it costs.

import { act, get } from "./api.js";
import { chart } from "./chart.js";
import { walk } from "./column.js";
import { clock, make } from "./dom.js";

const MOST_HOPS = 400;
const MOST_TURNS = 200;
const SAID = { bot: "bot", model: "model", platform: "platform" };

export class Inspector {
  constructor(root, fail) {
    this.root = root;
    this.fail = fail;
    this.panes = Object.fromEntries(["hops", "snapshot", "cost", "trouble"].map((name) => [name, root.querySelector(`#${name}`)]));
    this.tablist = root.querySelector("[role=tablist]");
    this.tablist.addEventListener("keydown", (event) => walk(event, this.tablist));
    for (const name of Object.keys(this.panes)) {
      root.querySelector(`#tab-${name}`).addEventListener("click", () => this.select(name));
    }
    this.hops = make("ol", { class: "hops" });
    this.empty = make("p", { class: "hint" }, "Write to the bot: each hop of the message is told here as it happens.");
    this.panes.hops.append(this.empty, this.hops);
    this.sticks = true;
    this.panes.hops.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.panes.hops;
      this.sticks = scrollHeight - scrollTop - clientHeight < 60;
    }, { passive: true });
    this.snapshots = new Map();
    this.turns = [];
    this.costs = [];
    this.followed = null;
    this.select("hops");
    this.showSnapshot();
  }

  select(name) {
    for (const [each, pane] of Object.entries(this.panes)) {
      const tab = this.root.querySelector(`#tab-${each}`);
      pane.hidden = each !== name;
      tab.setAttribute("aria-selected", String(each === name));
      tab.tabIndex = each === name ? 0 : -1;
    }
    this.selected = name;
    if (name === "cost") this.showCost();
    if (name === "hops") this.settle();
  }

  begin(state) {
    this.hops.replaceChildren();
    this.last = undefined;
    for (const hop of state.hops) this.hop(hop);
    this.turns = [...state.turns];
    this.costs = [...state.costs];
    this.snapshots = new Map(state.snapshots.map((each) => [each.key, each]));
    this.followed = state.snapshots.at(-1)?.key ?? null;
    this.troubles(state.troubles);
    this.showSnapshot();
    this.showCost();
  }

  // ---------------------------------------------------------------- hops

  hop(hop) {
    this.empty.hidden = true;
    const since = this.last === undefined ? null : hop.at - this.last;
    this.last = hop.at;
    if (since !== null && since > 1.5) this.hops.append(make("li", { class: "pause" }, since < 60 ? `${since.toFixed(1)} s later` : clock(hop.at)));
    this.hops.append(this.line(hop, since));
    while (this.hops.childElementCount > MOST_HOPS) this.hops.firstChild.remove();
    this.settle();
  }

  /** Whoever reads the newest goes on reading the newest. */
  settle() {
    const pane = this.panes.hops;
    if (!this.sticks || this.settling) return;
    this.settling = requestAnimationFrame(() => {
      this.settling = undefined;
      pane.scrollTop = pane.scrollHeight;
    });
  }

  line(hop, since) {
    const fields = Object.entries(hop.fields);
    const short = fields
      .filter(([name]) => name !== "model" || hop.by === "model")
      .filter(([name, value]) => value !== null && value !== "" && !["id", "execution", "request", "part", "text", "chat_id", "call", "answer"].includes(name))
      .slice(0, 7)
      .map(([name, value]) => make("span", { class: "field" }, make("i", {}, name), ` ${cut(Array.isArray(value) ? String(value.length) : shown(value), 40)}`));
    const details = make("details", {},
      make("summary", {},
        make("time", { title: clock(hop.at, { fine: true }) }, since === null || since > 1.5 ? clock(hop.at) : `+${Math.round(since * 1000)} ms`),
        make("span", { class: `by by-${hop.by}` }, SAID[hop.by] ?? hop.by),
        make("b", {}, hop.name),
        make("span", { class: "fields" }, ...short),
      ),
    );
    details.addEventListener("toggle", () => this.unfold(details, hop), { once: true });
    return make("li", { class: hop.bad ? "hop bad" : "hop" }, details);
  }

  async unfold(details, hop) {
    const table = make("dl", {});
    if (hop.key) table.append(make("dt", {}, "key"), make("dd", {}, hop.key));
    for (const [name, value] of Object.entries(hop.fields)) table.append(make("dt", {}, name), make("dd", {}, shown(value)));
    table.append(make("dt", {}, "at"), make("dd", {}, clock(hop.at, { fine: true })));
    details.append(table);
    if (hop.name !== "asked") return;
    try {
      details.append(asked(await get(`request/${hop.fields.request}`)));
    } catch {
      details.append(make("p", { class: "hint" }, "This request is not kept any more."));
    }
  }

  // ---------------------------------------------------------------- snapshot

  snapshot(found) {
    this.snapshots.delete(found.key);
    this.snapshots.set(found.key, found);
    this.followed = found.key;
    this.showSnapshot();
  }

  showSnapshot() {
    const pane = this.panes.snapshot;
    const found = this.snapshots.get(this.followed);
    if (!found) {
      pane.replaceChildren(make("p", { class: "hint" }, "What the bot has stored of a conversation is shown here after each save."));
      return;
    }
    const pick = make("select", { "aria-label": "Conversation", onchange: () => { this.followed = pick.value; this.showSnapshot(); } },
      ...[...this.snapshots.keys()].map((key) => make("option", { value: key, selected: key === this.followed }, key)));
    const changed = found.changed.map((each) =>
      make("li", {},
        make("code", {}, each.path),
        "was" in each ? make("del", {}, shown(each.was, 160)) : null,
        "is" in each ? make("ins", {}, shown(each.is, 160)) : null,
      ));
    pane.replaceChildren(
      pick,
      make("h3", {}, "What changed with the last save"),
      make("ul", { class: "changed" }, ...(changed.length ? changed : [make("li", {}, "nothing")])),
      make("h3", {}, "The snapshot"),
      make("pre", { class: "json" }, JSON.stringify(found.snapshot, null, 2)),
    );
  }

  // ---------------------------------------------------------------- cost

  turn(turn) {
    this.turns.push(turn);
    if (this.turns.length > MOST_TURNS) this.turns.shift();
    if (this.selected === "cost") this.showCost();
  }

  cost(cost) {
    this.costs.push(cost);
    if (this.costs.length > MOST_TURNS) this.costs.shift();
    if (this.selected === "cost") this.showCost();
  }

  showCost() {
    this.panes.cost.replaceChildren(...chart(this.turns, this.costs));
  }

  // ---------------------------------------------------------------- trouble

  troubles(all) {
    const on = all.filter((each) => each.on).length;
    const count = this.root.querySelector("#trouble-count");
    count.hidden = !on;
    count.textContent = String(on);
    const held = document.activeElement?.id;
    this.panes.trouble.replaceChildren(
      make("p", { class: "hint" }, "What may go wrong between the bot and the world. Switch one on, and write."),
      ...all.map((each) => this.trouble(each)),
    );
    if (held?.startsWith("trouble-")) document.getElementById(held)?.focus();
  }

  trouble(each) {
    const box = make("input", { type: "checkbox", role: "switch", id: `trouble-${each.name}`, onchange: () => this.set(each, box.checked) });
    box.checked = each.on;
    const left = each.on ? (each.left === null ? "until switched off" : `strikes ${each.left} more time${each.left === 1 ? "" : "s"}`) : "";
    return make("div", { class: "trouble" },
      make("label", { for: box.id }, box, make("b", {}, each.title), left ? make("span", { class: "left" }, left) : null),
      make("p", {}, each.says),
      make("p", { class: "promise" }, each.promise),
    );
  }

  async set(each, on) {
    const failed = await act("trouble", { name: each.name, on });
    if (failed) this.fail(failed);
  }
}

/** A request to the model: what it was sent, and where its beginning was marked to be kept. */
function asked(body) {
  const part = (role, block) => {
    const marked = Boolean(block.cache_control);
    const { cache_control: _, ...rest } = block;
    const text = block.type === "text" ? block.text : JSON.stringify(rest);
    return make("li", { class: marked ? "marked" : "" }, make("i", {}, role), " ", cut(text, 400), marked ? make("span", { class: "mark" }, "kept up to here") : null);
  };
  const blocks = (content) => (typeof content === "string" ? [{ type: "text", text: content }] : content ?? []);
  return make("ol", { class: "window" },
    ...blocks(body.system).map((block) => part("system", block)),
    ...body.messages.flatMap((message) => blocks(message.content).map((block) => part(message.role, block))),
  );
}

function cut(text, most) {
  return text.length <= most ? text : `${text.slice(0, most)}…`;
}

function shown(value, most = 400) {
  if (value === null) return "–";
  return cut(typeof value === "string" ? value : JSON.stringify(value), most);
}
