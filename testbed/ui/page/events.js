// The list of events, the latest first, and the checks of a run, which come as events.

import { el, time } from "./text.js";

const most = 500;
const list = document.getElementById("events");

const section = document.getElementById("checks");
const verdicts = document.getElementById("verdicts");
const rows = new Map(); // by check

export function clearEvents() { list.replaceChildren(); }

/** Shows the verdict of a check: a symbol and words, and its color. */
function showVerdict({ subject, detail }) {
  const [, verdict, soFar, found] = /^([A-Z]+)( so far)?: ([^]*)$/.exec(detail) ?? [];
  if (!verdict) return;
  const symbol = { PASS: "✓", FAIL: "✕" }[verdict] ?? "?";
  const row = el("tr", {}, el("th", { scope: "row" }, subject),
    el("td", { class: `verdict ${verdict.toLowerCase()}` }, `${symbol} ${verdict}${soFar ?? ""}`), el("td", {}, found));
  const old = rows.get(subject);
  if (old) old.replaceWith(row);
  else verdicts.append(row);
  rows.set(subject, row);
  section.hidden = false;
}

export function addEvents(events, missed) {
  if (missed) list.prepend(el("li", {}, "Earlier events are missing here; railbed events has those that are kept."));
  for (const e of events) {
    if (e.kind === "check.verdict") showVerdict(e);
    list.prepend(el("li", {}, el("time", { datetime: e.time }, time(e.time)), " ", el("b", {}, e.kind), " ",
      e.subject, " ", el("span", { class: "detail" }, e.detail ?? "")));
  }
  while (list.childElementCount > most) list.lastElementChild.remove();
}
