// The page of a testbed: it takes the changes from the server and passes them to its parts.

import { addEvents, clearEvents } from "./events.js";
import { closePanel, openPanel, updatePanel } from "./panel.js";
import { loadPicture, updatePicture } from "./picture.js";
import { select, updateTable } from "./table.js";
import { count, el, setText } from "./text.js";

const links = new Map(); // by name, in the testbed's order
let plan = "";

const byId = (id) => document.getElementById(id);

function open(name, from) {
  const link = links.get(name);
  if (link && source.readyState !== EventSource.CLOSED) openPanel(link, from);
}

/** Opens a single link, and shows several in the table. */
function choose(names, what) {
  if (names.length === 1) open(names[0]);
  else select(names, what);
}

function showSummary(s) {
  document.title = `${s.name}: Railbed`;
  setText(byId("name"), s.name);
  if (s.trouble) {
    setText(byId("status"), `No state: ${s.trouble}`);
    return;
  }
  const facts = [`${s.nodes} nodes`, `${s.ranks} ranks`, `${s.switches} switches`, `${s.links} links`,
    `${s.processes} processes`];
  if (s.soft) {
    facts.push(`packets under way: ${count(s.held)}`, `dropped: ${count(s.dropped)}`,
      `frames late by ${s.late} (p99)`);
  }
  if (s.deadlocks) facts.push(`▲ ${s.deadlocks} deadlocks`);
  if (s.file) facts.push(s.file);
  byId("facts").replaceChildren(...facts.map((f) => el("span", {}, f)));
  setText(byId("status"), `Up since ${new Date(s.created).toLocaleString("en-GB")}.`);
  if (s.plan !== plan) {
    plan = s.plan;
    loadPicture(links, choose);
  }
}

const source = new EventSource("stream");
let fresh = false;
source.onopen = () => { fresh = true; };
source.onerror = () => {
  setText(byId("status"), source.readyState === EventSource.CLOSED
    ? "No connection: railbed ui has ended, or too many pages are open. Reload the page to try again."
    : "The connection is lost. The page tries again.");
};
source.onmessage = (message) => {
  const update = JSON.parse(message.data);
  if (fresh) clearEvents(); // a new connection begins with everything
  fresh = false;
  for (const link of update.links ?? []) links.set(link.name, link);
  if (update.summary) showSummary(update.summary);
  if (update.links) {
    updateTable(update.links, open);
    updatePicture(update.links);
    updatePanel(update.links);
  }
  addEvents(update.events ?? [], update.missed);
  if (update.ended) {
    source.close();
    closePanel();
    document.body.classList.add("ended");
    for (const button of document.querySelectorAll("button.link")) button.disabled = true;
    byId("status").setAttribute("role", "alert");
    setText(byId("status"), update.ended);
  }
};
