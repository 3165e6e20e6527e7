// The list of events, the latest first.

import { el, time } from "./text.js";

const most = 500;
const list = document.getElementById("events");

export function clearEvents() { list.replaceChildren(); }

export function addEvents(events, missed) {
  if (missed) list.prepend(el("li", {}, "Earlier events are missing here; railbed events has those that are kept."));
  for (const e of events) {
    list.prepend(el("li", {}, el("time", { datetime: e.time }, time(e.time)), " ", el("b", {}, e.kind), " ",
      e.subject, " ", el("span", { class: "detail" }, e.detail ?? "")));
  }
  while (list.childElementCount > most) list.lastElementChild.remove();
}
