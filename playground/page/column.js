// One platform: its conversations, the one that is open, and a place to write.
//
// Only the open conversation has rows. The newest messages are there; older ones come when
// somebody scrolls to them. Rows hang in chunks, of which the browser lays out those that are to be
// seen (content-visibility): ten thousand rows cost what a hundred do.

import { act, get } from "./api.js";
import { make } from "./dom.js";
import { draftRow, row } from "./message.js";

const NEAR = 80; // pixels from the end within which a reader is at the end
const TYPING_MS = 5_500;
const CHUNK = 100; // rows that are laid out, or not, together

export class Column {
  constructor(root, { platform, title, suggestions, fail }) {
    this.platform = platform;
    this.fail = fail;
    this.root = root;
    this.chats = new Map(); // place -> what it is
    this.messages = new Map(); // place -> Map(id -> message), in the order of ids
    this.drafts = new Map(); // place -> draft
    this.typing = new Map(); // place -> timer
    this.whole = new Set(); // places of which nothing older is left to load
    this.unread = new Map();
    this.people = [];
    this.bot = "";
    this.open = null;
    this.rows = new Map();
    this.editing = null;
    this.replying = null;
    this.build(title, suggestions);
  }

  build(title, suggestions) {
    this.tabs = make("div", { class: "chats", role: "tablist", "aria-label": `Conversations on ${title}` });
    this.tabs.addEventListener("keydown", (event) => walk(event, this.tabs));
    this.log = make("div", { class: "log", role: "log", "aria-label": "Messages", tabindex: "0" });
    // Whoever is at the end stays there, whatever grows; whoever reads above is left in peace.
    this.sticks = true;
    this.log.addEventListener("scroll", () => { this.sticks = this.isAtEnd(); this.older(); }, { passive: true });
    const resized = new ResizeObserver(() => this.settle());
    this.list = make("div", { class: "rows" });
    this.growing = make("div", { class: "growing", "aria-live": "off" });
    this.log.append(this.list, this.growing);
    for (const each of [this.log, this.list, this.growing]) resized.observe(each);
    this.who = make("select", { "aria-label": "Write as", onchange: () => this.note() });
    this.mention = make("input", { type: "checkbox", id: `${this.platform}-mention`, checked: true });
    this.mentionLabel = make("label", { class: "mention", for: this.mention.id }, this.mention, make("span"));
    this.text = make("textarea", {
      rows: "1",
      "aria-label": "Message",
      placeholder: "Write a message",
      onkeydown: (event) => this.key(event),
      oninput: () => this.fit(),
    });
    this.note_ = make("div", { class: "note", hidden: true });
    this.chips = make("div", { class: "chips", role: "group", "aria-label": "Things to say" });
    for (const say of suggestions) {
      this.chips.append(make("button", { type: "button", class: "chip", title: say.text, onclick: () => this.send(say.text) }, say.label ?? say.text));
    }
    this.file = make("input", { type: "file", class: "hidden", tabindex: "-1", "aria-hidden": "true", onchange: () => this.attach() });
    const clip = make("button", { type: "button", class: "clip", "aria-label": "Attach a file", title: "Attach a file", onclick: () => this.file.click() }, "+");
    const form = make(
      "form",
      { class: "composer", onsubmit: (event) => { event.preventDefault(); this.send(this.text.value); } },
      this.chips,
      this.note_,
      make("div", { class: "as" }, make("label", {}, "as ", this.who), this.mentionLabel),
      make("div", { class: "line" }, clip, this.file, this.text, make("button", { type: "submit", class: "send" }, "Send")),
    );
    this.root.replaceChildren(make("h2", {}, title), this.tabs, this.log, form);
  }

  // ---------------------------------------------------------------- what the feed tells

  begin(state) {
    this.people = state.people;
    this.bot = state.bot;
    this.chats = new Map(state.chats.map((chat) => [chat.id, chat]));
    this.messages = new Map(state.chats.map((chat) => [chat.id, new Map()]));
    this.whole.clear();
    for (const message of state.messages) this.messages.get(message.place)?.set(message.id, this.own(message));
    this.drafts = new Map();
    for (const draft of state.drafts) this.keepDraft(draft);
    this.mentionLabel.lastChild.textContent = ` @${this.bot}`;
    const first = this.open !== null && this.chats.has(this.open) ? this.open : state.chats[0]?.id;
    this.open = null;
    this.listChats();
    if (first !== undefined) this.show(first);
  }

  heard(message) {
    const messages = this.messages.get(message.place);
    if (messages === undefined) return;
    const known = messages.has(message.id);
    messages.set(message.id, this.own(message));
    if (message.bot) this.stopTyping(message.place);
    if (message.place !== this.open) {
      if (!known) this.mark(message.place);
      return;
    }
    this.put(message);
  }

  deleted(gone) {
    for (const [place, messages] of this.messages) {
      if (!this.chats.get(place) || this.chats.get(place).chat !== gone.chat || !messages.delete(gone.id)) continue;
      if (place === this.open) {
        this.rows.get(gone.id)?.remove();
        this.rows.delete(gone.id);
      }
    }
  }

  drafted({ chat, drafts }) {
    for (const place of [...this.drafts.keys()]) {
      if (this.chats.get(place)?.chat === chat) this.dropDraft(place);
    }
    for (const draft of drafts) this.keepDraft(draft);
    this.grow();
  }

  typed({ chat, thread, on = true }) {
    for (const [place, about] of this.chats) {
      if (about.chat !== chat || (about.thread ?? null) !== (thread ?? null)) continue;
      this.stopTyping(place);
      if (!on) {
        this.grow();
        continue;
      }
      this.typing.set(place, setTimeout(() => { this.stopTyping(place); this.grow(); }, TYPING_MS));
      this.grow();
    }
  }

  // ---------------------------------------------------------------- the open conversation

  show(place) {
    this.open = place;
    this.unread.delete(place);
    this.leave();
    const chat = this.chats.get(place);
    this.who.replaceChildren(
      ...this.people
        .filter((person) => chat.person === null || chat.person === person.id)
        .map((person) => make("option", { value: person.id }, person.name)),
    );
    this.who.disabled = chat.person !== null;
    this.mentionLabel.hidden = chat.person !== null;
    this.rows.clear();
    this.list.replaceChildren();
    for (const message of this.messages.get(place).values()) this.append(this.newRow(message));
    this.grow();
    this.toEnd();
    this.listChats();
  }

  put(message) {
    const old = this.rows.get(message.id);
    const fresh = this.newRow(message);
    if (old) old.replaceWith(fresh);
    else this.place(message, fresh);
    this.grow();
  }

  /** A reply goes to the end of its thread, all else to the end. */
  place(message, fresh) {
    const root = this.platform === "slack" ? this.rows.get(message.thread) : undefined;
    if (root === undefined) return this.append(fresh);
    let last = root;
    while (last.nextElementSibling?.dataset.thread === message.thread) last = last.nextElementSibling;
    last.after(fresh);
  }

  append(element) {
    let chunk = this.list.lastElementChild;
    if (!chunk || chunk.childElementCount >= CHUNK) {
      chunk = make("div", { class: "chunk" });
      this.list.append(chunk);
    }
    chunk.append(element);
  }

  newRow(message) {
    const element = row(message, {
      press: (on, button) => this.press(on, button),
      edit: (on) => this.edit(on),
      reply: (on) => this.reply(on),
      stop: (on) => this.stop(on),
    });
    this.rows.set(message.id, element);
    return element;
  }

  grow() {
    const draft = this.drafts.get(this.open);
    const nodes = [];
    if (draft) nodes.push(draftRow(draft, { stop: (on) => this.stop(on) }));
    else if (this.typing.has(this.open)) nodes.push(make("div", { class: "typing" }, "typing", make("i"), make("i"), make("i")));
    this.growing.replaceChildren(...nodes);
    this.settle();
  }

  /** To the end, once for all that comes within a frame: to ask where the end is costs a layout. */
  settle() {
    if (!this.sticks || this.settling) return;
    this.settling = requestAnimationFrame(() => {
      this.settling = undefined;
      if (this.sticks) this.toEnd();
    });
  }

  isAtEnd() {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR;
  }

  toEnd() {
    this.sticks = true;
    this.log.scrollTop = this.log.scrollHeight;
  }

  /** Messages from before, when somebody has come to the beginning of what there is. */
  async older() {
    if (this.log.scrollTop > 400 || this.loading || this.whole.has(this.open) || !this.rows.size) return;
    this.loading = true;
    const place = this.open;
    const chat = this.chats.get(place);
    const known = this.messages.get(place);
    const before = known.keys().next().value;
    try {
      const query = new URLSearchParams({ platform: this.platform, chat: chat.chat, before });
      if (chat.thread !== null) query.set("thread", chat.thread);
      const found = await get(`history?${query}`);
      if (!found.length) this.whole.add(place);
      this.messages.set(place, new Map([...found.map((each) => [each.id, this.own(each)]), ...known]));
      if (place === this.open && found.length) {
        const height = this.log.scrollHeight - this.log.scrollTop;
        this.list.prepend(make("div", { class: "chunk" }, ...found.map((each) => this.newRow(each))));
        this.log.scrollTop = this.log.scrollHeight - height;
      }
    } catch {
      this.fail("older messages could not be loaded");
      return;
    } finally {
      this.loading = false;
    }
    // Still there: nobody has to move away and come back.
    requestAnimationFrame(() => this.older());
  }

  // ---------------------------------------------------------------- the list of conversations

  listChats() {
    const held = this.tabs.contains(document.activeElement);
    let of = null;
    const nodes = [];
    for (const [place, chat] of this.chats) {
      if (chat.of !== of && chat.of) nodes.push(make("span", { class: "of" }, chat.of));
      of = chat.of;
      const here = place === this.open;
      const news = this.unread.get(place);
      nodes.push(
        make(
          "button",
          { type: "button", role: "tab", "aria-selected": here ? "true" : "false", tabindex: here ? "0" : "-1", class: `chat ${chat.kind}`, "data-place": place, onclick: () => this.show(place) },
          chat.title,
          news ? make("span", { class: "count", "aria-label": `${news} new` }, String(news)) : null,
        ),
      );
    }
    this.tabs.replaceChildren(...nodes);
    const open = this.tabs.querySelector("[aria-selected=true]");
    if (held) open?.focus();
  }

  mark(place) {
    this.unread.set(place, (this.unread.get(place) ?? 0) + 1);
    this.listChats();
  }

  // ---------------------------------------------------------------- what a person does

  where() {
    const chat = this.chats.get(this.open);
    const thread = this.platform === "slack" ? this.thread() : chat.thread;
    return { platform: this.platform, chat: chat.chat, thread, person: this.person() };
  }

  /** On Slack a reply is a message in the thread of what it answers. */
  thread() {
    return this.replying ? (this.replying.thread ?? this.replying.id) : null;
  }

  person() {
    const value = this.who.value;
    return /^\d+$/.test(value) ? Number(value) : value;
  }

  async send(text) {
    if (!text.trim() || this.open === null) return;
    let failed;
    if (this.editing !== null) {
      failed = await act("edit", { ...this.where(), message: this.editing.id, text });
    } else {
      failed = await act("say", { ...this.where(), text: this.named(text), reply_to: this.replying?.id ?? null });
    }
    if (failed) return this.fail(failed);
    if (text === this.text.value) this.text.value = "";
    if (this.platform === "slack" && this.replying) {
      // Whoever is in a thread stays there.
      this.fit();
      return;
    }
    this.leave();
    this.fit();
    this.toEnd();
  }

  /** In a group, with the bot's name in front if the person wants that. */
  named(text) {
    const alone = this.chats.get(this.open).person !== null;
    if (alone || !this.mention.checked || text.startsWith("/") || text.startsWith("@")) return text;
    return `@${this.bot} ${text}`;
  }

  async attach() {
    const [file] = this.file.files;
    this.file.value = "";
    if (!file || this.open === null) return;
    const failed = await act("say", { ...this.where(), text: this.named(this.text.value), file: { name: file.name, type: file.type, data: await base64(file) } });
    if (failed) return this.fail(failed);
    this.text.value = "";
    this.leave();
  }

  async press(message, button) {
    const failed = await act("press", { ...this.where(), message: message.id, data: button.data, label: button.label });
    if (failed) this.fail(failed);
  }

  async stop(draft) {
    const failed = await act("stop", { ...this.where(), ...(draft.stop ? { thread: draft.stop } : {}) });
    if (failed) this.fail(failed);
  }

  edit(message) {
    this.leave();
    this.editing = message;
    const writer = [...this.who.options].find((option) => option.value === String(message.from));
    if (writer) this.who.value = writer.value;
    this.text.value = message.text;
    this.note("Editing");
    this.text.focus();
    this.fit();
  }

  reply(message) {
    this.leave();
    this.replying = message;
    this.note(this.platform === "slack" ? "In the thread" : `Replying to ${message.name}`);
    this.text.focus();
  }

  leave() {
    if (this.editing) this.text.value = "";
    this.editing = this.replying = null;
    this.note();
  }

  note(text) {
    if (text === undefined && (this.editing || this.replying)) return;
    this.note_.hidden = text === undefined;
    this.note_.replaceChildren(
      ...(text === undefined ? [] : [text, " ", make("button", { type: "button", class: "act", onclick: () => this.leave() }, "Cancel")]),
    );
  }

  key(event) {
    if (event.key === "Escape") this.leave();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.send(this.text.value);
  }

  fit() {
    this.text.rows = Math.min(6, Math.max(1, this.text.value.split("\n").length));
  }

  // ---------------------------------------------------------------- inside

  own(message) {
    message.platform = this.platform;
    if (message.file) message.file.url = message.file.url ?? `file/${this.platform}/${this.chats.get(message.place)?.chat}/${message.id}`;
    return message;
  }

  keepDraft(draft) {
    this.dropDraft(draft.place);
    draft.timer = setTimeout(() => { this.drafts.delete(draft.place); this.grow(); }, draft.seconds * 1000);
    this.drafts.set(draft.place, draft);
    this.stopTyping(draft.place);
  }

  dropDraft(place) {
    clearTimeout(this.drafts.get(place)?.timer);
    this.drafts.delete(place);
  }

  stopTyping(place) {
    clearTimeout(this.typing.get(place));
    this.typing.delete(place);
  }
}

/** Arrow keys, Home and End go from tab to tab. */
export function walk(event, tabs) {
  const all = [...tabs.querySelectorAll("[role=tab]")];
  const at = all.indexOf(document.activeElement);
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined || at < 0) return;
  event.preventDefault();
  const next = all[(to + all.length) % all.length];
  next.focus();
  next.click();
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => reject(reader.error);
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.readAsDataURL(file);
  });
}
