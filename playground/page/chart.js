// Tokens of each request to the model, and money: pictures of our own.

import { draw, make } from "./dom.js";

const WIDTH = 460;
const HEIGHT = 150;
const MOST = 40; // bars
const PARTS = [
  ["cached", "read from the cache"],
  ["cache_written", "written to the cache"],
  ["input", "other input"],
  ["output", "output"],
];

/** Elements to show. `turns` have tokens of one request each, `costs` money of one answer each. */
export function chart(turns, costs) {
  if (!turns.length) return [make("p", { class: "hint" }, "Tokens and money of each answer are drawn here.")];
  const shown = turns.slice(-MOST);
  const input = sum(turns, "input") + sum(turns, "cached") + sum(turns, "cache_written");
  const share = input ? Math.round((100 * sum(turns, "cached")) / input) : 0;
  const total = costs.reduce((all, each) => all + Number(each.cost), 0);
  return [
    make("h3", {}, "Tokens of each request"),
    bars(shown, PARTS.map(([name]) => name), (turn, name) => turn[name] ?? 0, (value) => value.toLocaleString("en")),
    make("ul", { class: "legend" }, ...PARTS.map(([name, label]) => make("li", { class: name }, label))),
    make("p", { class: "sum" }, `${share} % of all input came from the cache.`),
    make("h3", {}, "Money for each answer"),
    costs.length
      ? bars(costs.slice(-MOST), ["money"], (each) => Number(each.cost), (value) => value.toFixed(4))
      : make("p", { class: "hint" }, "Told after the first answer is stored."),
    make("p", { class: "sum" }, `${total.toFixed(4)} ${costs.at(-1)?.currency ?? ""} in all, at the prices of the real model.`),
  ];
}

function sum(turns, name) {
  return turns.reduce((all, turn) => all + (turn[name] ?? 0), 0);
}

function bars(rows, names, value, label) {
  const most = Math.max(...rows.map((row) => names.reduce((all, name) => all + value(row, name), 0)), Number.MIN_VALUE);
  const left = 52;
  const step = (WIDTH - left) / Math.max(rows.length, 12);
  const picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 14}`, class: "chart", role: "img", "aria-label": `${rows.length} bars, the highest ${label(most)}` });
  for (const part of [0, 0.5, 1]) {
    const y = HEIGHT - part * (HEIGHT - 12);
    picture.append(draw("line", { x1: left, x2: WIDTH, y1: y, y2: y, class: "grid" }));
    const text = draw("text", { x: left - 6, y: y + 4, "text-anchor": "end" });
    text.textContent = label(most * part);
    picture.append(text);
  }
  rows.forEach((row, index) => {
    let y = HEIGHT;
    for (const name of names) {
      const height = (value(row, name) / most) * (HEIGHT - 12);
      y -= height;
      const bar = draw("rect", { x: left + index * step + 1, y, width: Math.max(1, step - 3), height, class: name });
      const title = draw("title");
      title.textContent = `${name} ${label(value(row, name))}`;
      bar.append(title);
      if (height > 0) picture.append(bar);
    }
  });
  return picture;
}
