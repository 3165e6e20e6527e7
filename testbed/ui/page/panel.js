// The panel of a link: its counters, its settings, its state, and recordings of its packets.

import { makeRecorder } from "./recorder.js";
import { buttonOf } from "./table.js";
import { bits, bytes, count, el, get, percent, post, setText } from "./text.js";

const panel = document.getElementById("panel");
const main = document.getElementById("main");
const narrow = matchMedia("(max-width: 900px)");
let shown = null; // { link, rows, recorder, from }

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && shown) {
    event.preventDefault();
    closePanel();
  }
});
// On a narrow screen the panel covers the page, which then must not get the focus.
const cover = () => { main.inert = Boolean(shown) && narrow.matches; };
narrow.addEventListener("change", cover);

export function closePanel() {
  if (!shown) return;
  const { link, recorder, from } = shown;
  recorder.stop();
  shown = null;
  panel.hidden = true;
  panel.replaceChildren();
  document.body.classList.remove("with-panel");
  cover();
  (from?.isConnected ? from : buttonOf(link.name))?.focus();
}

export function openPanel(link, from) {
  if (shown?.link.name === link.name) return panel.querySelector("h2").focus();
  shown?.recorder.stop();
  const rows = lines.map(([name]) => ({ name, cells: [el("td", {}), el("td", {})] }));
  shown = { link, rows, from, recorder: makeRecorder(link) };
  const title = el("h2", { id: "panel-title", tabindex: "-1" }, link.name);
  panel.replaceChildren(
    el("p", { class: "close" }, el("button", { type: "button", onclick: closePanel }, "Close ", el("kbd", {}, "Esc"))),
    title,
    el("table", { class: "counters" },
      el("thead", {}, el("tr", {}, el("td", {}), el("th", { scope: "col" }, `${link.ends[0]} →`),
        el("th", { scope: "col" }, `${link.ends[1]} →`))),
      el("tbody", {}, ...rows.map(({ name, cells }) =>
        el("tr", {}, el("th", { scope: "row" }, name), ...cells)))),
    makeSettings(link), shown.recorder.element);
  panel.hidden = false;
  document.body.classList.add("with-panel");
  cover();
  updatePanel([link]);
  title.focus();
}

const lines = [
  ["State", (d) => (d.up ? "up" : "✕ down") + (d.paused ? ", paused" : "")],
  ["Rate", (d) => d.rate],
  ["Traffic", (d) => `${bits(d.bps)}, ${percent(d.load)}`],
  ["Settings", (d) => d.settings ?? ""],
  ["Sent", (d) => `${bytes(d.bytes)}, ${count(d.packets)} packets`],
  ["Queued", (d) => bytes(d.waiting)],
  ["Drops", (d) => (d.dropping ? "▲ " : "") + count(d.drops) + (d.reasons ? ` (${d.reasons.join(", ")})` : "")],
  ["Marks, trims", (d) => `${count(d.marks)}, ${count(d.trims)}`],
  ["Pauses", (d) => count(d.pauses)],
];

export function updatePanel(changed) {
  const link = shown && changed.find((l) => l.name === shown.link.name);
  if (!link) return;
  shown.rows.forEach(({ cells }, i) =>
    cells.forEach((cell, n) => setText(cell, lines[i][1](link.directions[n]))));
}

/** Makes the form for the link's settings and state. */
function makeSettings(link) {
  const [a, b] = link.ends;
  const way = el("select", { id: "way", onchange: () => fill() },
    el("option", { value: "" }, "both directions"),
    el("option", { value: "a-to-b" }, `a-to-b: ${a} → ${b}`),
    el("option", { value: "b-to-a" }, `b-to-a: ${b} → ${a}`));
  const said = el("p", { role: "alert", class: "said" });
  const fields = el("div", { class: "fields" });
  const others = el("div", { class: "fields" });
  const more = el("details", {}, el("summary", {}, "More settings"), others);
  const without = el("p", { class: "note" });
  const where = () => (way.value ? `${link.name} ${way.value}` : link.name);
  let form = { fields: [] };
  let inputs = [];

  const say = (text, wrong) => {
    said.textContent = text;
    said.classList.toggle("wrong", Boolean(wrong));
  };
  const fill = () => {
    say("");
    inputs = form.fields.map((f) => {
      const [there, back] = f.values;
      const differ = way.value === "" && there !== back;
      const was = differ ? "" : f.values[way.value === "b-to-a" ? 1 : 0];
      const wrong = el("span", { class: "wrong", id: `wrong-${f.key}` });
      const input = el("input", { id: `set-${f.key}`, value: was, autocomplete: "off", spellcheck: "false",
        placeholder: differ ? `${there || "none"} and ${back || "none"}` : `as ${f.hint}`,
        "aria-describedby": wrong.id });
      return { key: f.key, more: f.more, was, input, wrong };
    });
    for (const [place, which] of [[fields, false], [others, true]]) {
      place.replaceChildren(...inputs.filter((i) => Boolean(i.more) === which).map(({ key, input, wrong }) =>
        el("div", {}, el("label", { for: input.id }, key), input, wrong)));
    }
    more.hidden = !form.fields.some((f) => f.more);
    without.textContent = form.without ? `Left out: ${form.without.join(", ")}; ${form.why}.` : "";
  };
  const show = (list) => {
    for (const { key, input, wrong } of inputs) {
      wrong.textContent = list.filter((p) => p.key === key).map((p) => p.text).join("\n");
      input.setAttribute("aria-invalid", wrong.textContent !== "");
    }
    const rest = list.filter((p) => !inputs.some(({ key }) => key === p.key)).map((p) => p.text).join("\n");
    say(rest || "Nothing was changed.", true);
    const first = inputs.find(({ wrong }) => wrong.textContent);
    if (first?.more) more.open = true;
    first?.input.focus();
  };
  const attempt = async (work) => {
    say("Changing the link.");
    try {
      await work();
    } catch (error) {
      show(error.list ?? [{ text: String(error) }]);
    }
  };
  const set = (event) => {
    event.preventDefault();
    const changed = Object.fromEntries(inputs.filter(({ input, was }) => input.value !== was)
      .map(({ key, input }) => [key, input.value]));
    attempt(async () => {
      form = await (await post("link/set", { where: where(), set: changed })).json();
      fill();
      say("The link has the new settings.");
    });
  };
  const bring = (state) => attempt(async () => {
    await post("link/state", { where: where(), state });
    say(`The link is ${state}${way.value ? " in this direction" : ""}.`);
  });
  get(`link?name=${encodeURIComponent(link.name)}`).then((f) => { form = f; fill(); },
    (error) => say(error.message, true));
  return el("form", { class: "settings", onsubmit: set },
    el("h3", {}, "Change the link"),
    el("p", { class: "tools" }, el("label", { for: "way" }, "In"), way,
      el("button", { type: "button", onclick: () => bring("down") }, "Take down"),
      el("button", { type: "button", onclick: () => bring("up") }, "Bring up")),
    fields, more, without, el("p", { class: "tools" }, el("button", { type: "submit" }, "Set")), said);
}
