// A tree of elements, as the server has made it of markdown. Only these elements, and no attribute
// but a link's address: whatever a bot says, it is text.

import { make } from "./dom.js";
import { link } from "./entities.js";

const ALLOWED = new Set(["p", "strong", "em", "s", "code", "pre", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "hr"]);

export function built(nodes) {
  return nodes.map((node) => {
    if (typeof node === "string") return node;
    const children = built(node.children ?? []);
    if (node.tag === "a") return link(node.href, children);
    return make(ALLOWED.has(node.tag) ? node.tag : "span", {}, ...children);
  });
}
