// A text and its entities as elements. Offsets count UTF-16 units, as JavaScript's own do.

import { make } from "./dom.js";

const TAGS = {
  bold: "strong",
  italic: "em",
  underline: "u",
  strikethrough: "s",
  code: "code",
  blockquote: "blockquote",
  expandable_blockquote: "blockquote",
};

/** Nodes for `text`. Entities are sorted and nested; one that is not is cut at its parent's end. */
export function rendered(text, entities) {
  const sorted = [...entities].sort((a, b) => a.offset - b.offset || b.length - a.length);
  return inside(text, 0, text.length, sorted);
}

function inside(text, start, end, entities) {
  const nodes = [];
  let at = start;
  let index = 0;
  let before = null;
  // A block ends the line by itself: the line ends around it would be empty lines.
  const words = (to, next) => {
    let plain = text.slice(at, to);
    if (isBlock(before)) plain = plain.replace(/^\n/, "");
    if (isBlock(next)) plain = plain.replace(/\n$/, "");
    if (plain) nodes.push(plain);
  };
  while (index < entities.length) {
    const entity = entities[index];
    const stop = Math.min(entity.offset + entity.length, end);
    const within = [];
    index += 1;
    while (index < entities.length && entities[index].offset < stop) within.push(entities[index++]);
    if (entity.offset < at || stop <= entity.offset) continue;
    words(entity.offset, entity);
    nodes.push(wrapped(entity, text, stop, within));
    at = stop;
    before = entity;
  }
  words(end, null);
  return nodes;
}

function isBlock(entity) {
  return entity !== null && ["pre", "blockquote", "expandable_blockquote"].includes(entity.type);
}

function wrapped(entity, text, stop, within) {
  const children = inside(text, entity.offset, stop, within);
  const plain = text.slice(entity.offset, stop);
  switch (entity.type) {
    case "pre":
      return make("pre", { "data-language": entity.language }, make("code", {}, ...children));
    case "text_link":
      return link(entity.url, children);
    case "url":
      return link(plain, children);
    case "spoiler":
      return make("span", { class: "spoiler", tabindex: "0" }, ...children);
    case "mention":
    case "text_mention":
    case "bot_command":
    case "hashtag":
      return make("span", { class: "marked" }, ...children);
    default:
      return make(TAGS[entity.type] ?? "span", {}, ...children);
  }
}

/** Only what leads to the web is a link: a bot may say anything. */
export function link(address, children) {
  if (!/^https?:\/\//i.test(address ?? "")) return make("span", { class: "marked" }, ...children);
  return make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, ...children);
}
