// The page: puts columns, inspector and feed together.

import { act, connect, on } from "./api.js";
import { Column } from "./column.js";
import { Inspector } from "./inspector.js";

const one = (selector) => document.querySelector(selector);
const toast = one("#toast");
let toastTimer;

function say(text) {
  if (!text) return;
  toast.textContent = text;
  toast.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { toast.hidden = true; }, 6000);
}

const telegram = new Column(one("#telegram"), {
  platform: "telegram",
  title: "Telegram",
  fail: say,
  suggestions: [
    { text: "My name is Alice. Remember it.", label: "tell it a name" },
    { text: "What is my name?", label: "ask for it" },
    { text: "say 120 words", label: "a long answer" },
    { text: 'use buy with {"thing": "a boat", "euros": 9000}', label: "a tool that asks" },
    { text: "/reset" },
    { text: "/help" },
  ],
});
const slack = new Column(one("#slack"), {
  platform: "slack",
  title: "Slack",
  fail: say,
  suggestions: [
    { text: "My name is Alice. Remember it.", label: "tell it a name" },
    { text: "What is my name?", label: "ask for it" },
    { text: "say 120 words", label: "a long answer" },
    { text: 'use buy with {"thing": "a boat", "euros": 9000}', label: "a tool that asks" },
    { text: "/chinwag reset" },
    { text: "/chinwag help" },
  ],
});
one("#slack").hidden = false;
one("nav.views [data-view=slack]").hidden = false;
const columns = { telegram, slack };
const inspector = new Inspector(one("#inspector"), say);

function columnOf(data) {
  return columns[data.platform ?? data.place?.split(":")[0]];
}

function showBot(bot) {
  const words = {
    running: `running, pid ${bot.pid}`,
    starting: "starting",
    dead: bot.code === -9 ? "killed" : `ended with code ${bot.code}`,
    stopped: "stopped",
  };
  one("#bot-state").textContent = words[bot.state] + (bot.kills ? `, killed ${bot.kills}×` : "");
  one("#dot").className = `dot ${bot.state}`;
  const kill = one("#kill");
  const down = bot.state === "dead" || bot.state === "stopped";
  kill.textContent = down ? "start" : "kill -9";
  kill.dataset.does = down ? "start" : "kill";
  one("#model-pick").hidden = !bot.real;
  one("#model").value = bot.model;
}

on("state", (state) => {
  for (const [name, column] of Object.entries(columns)) if (state[name]) column.begin(state[name]);
  inspector.begin(state);
  showBot(state.bot);
  document.body.dataset.ready = "yes";
});
on("bot", showBot);
on("message", (message) => columnOf(message)?.heard(message));
on("deleted", (gone) => columnOf(gone)?.deleted(gone));
on("drafts", (drafts) => columnOf(drafts)?.drafted(drafts));
on("typing", (typing) => columnOf(typing)?.typed(typing));
on("hop", (hop) => inspector.hop(hop));
on("turn", (turn) => inspector.turn(turn));
on("cost", (cost) => inspector.cost(cost));
on("snapshot", (found) => inspector.snapshot(found));
on("troubles", ({ all }) => inspector.troubles(all));
on("toast", ({ text }) => say(text));

one("#kill").addEventListener("click", async () => {
  say(await act(one("#kill").dataset.does ?? "kill"));
});
one("#model").addEventListener("change", async () => {
  say(await act("model", { which: one("#model").value }));
});
for (const button of document.querySelectorAll("nav.views button")) {
  button.addEventListener("click", () => view(button.dataset.view));
}

/** On a narrow screen one thing is to be seen at a time. */
function view(name) {
  document.body.dataset.view = name;
  for (const button of document.querySelectorAll("nav.views button")) {
    button.setAttribute("aria-pressed", String(button.dataset.view === name));
  }
}

view("telegram");
connect((line) => {
  document.body.dataset.line = line;
  if (line === "lost") {
    one("#bot-state").textContent = "the playground does not answer";
    one("#dot").className = "dot dead";
  }
});
