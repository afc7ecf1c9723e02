// One message as it looks: who, when, what it says, what hangs on it.

import { clock, make } from "./dom.js";
import { rendered } from "./entities.js";
import { built } from "./nodes.js";

/**
 * The row of a message.
 * `can` says what may be done: press(message, data), edit(message), reply(message), mine(message).
 */
export function row(message, can) {
  const mine = !message.bot;
  const bubble = make("div", { class: "bubble" });
  if (message.name) bubble.append(make("div", { class: "who" }, message.name));
  if (message.reply) bubble.append(quoted(message.reply));
  if (message.file) bubble.append(file(message));
  if (message.text || message.nodes?.length) bubble.append(body(message));
  bubble.append(foot(message, can));
  const element = make(
    "article",
    {
      class: `row ${mine ? "person" : "bot"}${message.growing ? " draft" : ""}${message.thread && message.platform === "slack" ? " reply" : ""}`,
      "data-id": message.id,
      "data-thread": message.thread,
      "aria-label": `${message.name}, ${clock(message.at)}`,
    },
    bubble,
  );
  if (message.buttons) element.append(keyboard(message, can));
  if (message.growing && message.stop) element.append(stopKey(() => can.stop(message)));
  return element;
}

/** What grows and is not yet a message. */
export function draftRow(draft, can) {
  const bubble = make(
    "div",
    { class: "bubble" },
    make("div", { class: "who" }, "is answering"),
    make("div", { class: "text" }, ...rendered(draft.text || "…", draft.entities)),
  );
  const element = make("article", { class: "row bot draft", "aria-label": "a draft" }, bubble);
  if (draft.can_stop) element.append(stopKey(() => can.stop(draft)));
  return element;
}

function stopKey(stop) {
  const key = make("button", { type: "button", class: "key", onclick: stop }, "Stop");
  return make("div", { class: "keys" }, make("div", { class: "keyrow" }, key));
}

function body(message) {
  if (message.nodes) return make("div", { class: "text tree" }, ...built(message.nodes));
  return make("div", { class: "text" }, ...rendered(message.text, message.entities));
}

function quoted(reply) {
  return make("div", { class: "quote" }, make("b", {}, reply.name), " ", reply.text);
}

function foot(message, can) {
  const line = make("div", { class: "foot" });
  const act = (label, name, run) =>
    make("button", { type: "button", class: "act", "aria-label": `${name} this message`, onclick: run }, label);
  if (can.reply) line.append(act("Reply", "Reply to", () => can.reply(message)));
  if (!message.bot && can.edit) line.append(act("Edit", "Edit", () => can.edit(message)));
  if (message.only) line.append(make("span", { class: "edits" }, `only ${message.only} sees this`));
  if (message.replies) line.append(make("span", { class: "edits" }, `${message.replies} in the thread`));
  if (message.growing) line.append(make("span", { class: "edits" }, "is answering"));
  else if (message.edits) line.append(make("span", { class: "edits" }, `edited ${message.edits}×`));
  else if (message.edited) line.append(make("span", { class: "edits" }, "edited"));
  line.append(make("time", {}, clock(message.at)));
  return line;
}

function keyboard(message, can) {
  const keys = make("div", { class: "keys" });
  for (const buttons of message.buttons) {
    const line = make("div", { class: "keyrow" });
    for (const each of buttons) {
      line.append(make("button", { type: "button", class: "key", onclick: () => can.press(message, each) }, each.label));
    }
    keys.append(line);
  }
  return keys;
}

const PICTURES = new Set(["photo", "sticker", "animation"]);

function file(message) {
  const { kind, name, size, there, url } = message.file;
  if (there && (PICTURES.has(kind) || /\.(png|jpe?g|gif|webp)$/i.test(name))) {
    return make("a", { href: url, target: "_blank", class: "picture" }, make("img", { src: url, alt: name, loading: "lazy" }));
  }
  const label = [make("span", { class: "filename" }, name), " ", make("small", {}, weight(size))];
  return there
    ? make("a", { class: "file", href: url, download: name }, ...label)
    : make("div", { class: "file" }, ...label);
}

function weight(bytes) {
  if (!bytes) return "";
  return bytes < 1024 ? `${bytes} B` : bytes < 1 << 20 ? `${Math.round(bytes / 1024)} KB` : `${(bytes / (1 << 20)).toFixed(1)} MB`;
}
