// A recording of the packets of a link, as lines. It ends with its panel and with the page.

import { count, el, post } from "./text.js";

const most = 500; // packets in the list

export function makeRecorder(link) {
  const [a, b] = link.ends;
  const at = el("select", { id: "at" }, el("option", { value: a }, a), el("option", { value: b }, b),
    el("option", { value: `${a} ${b}` }, "both ends"));
  const filter = el("input", { id: "display", autocomplete: "off", spellcheck: "false",
    placeholder: "tcp.flags.reset == 1", "aria-describedby": "display-wrong" });
  const wrong = el("p", { class: "wrong", id: "display-wrong", role: "alert" });
  const counts = el("p", { class: "note", role: "status" });
  const list = el("ol", { class: "packets" });
  const scroll = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Packets" }, list);
  const button = el("button", { type: "submit" }, "Record");
  let running = null; // { abort, id }

  const stop = () => running?.abort.abort();
  const start = async () => {
    const mine = { abort: new AbortController() };
    running = mine;
    button.textContent = "Stop";
    list.replaceChildren();
    wrong.textContent = counts.textContent = "";
    filter.removeAttribute("aria-invalid");
    try {
      const response = await post("capture", { at: at.value.split(" "), filter: filter.value },
        { signal: mine.abort.signal });
      for await (const message of messages(response.body)) {
        mine.id ??= message.id;
        show(message);
      }
    } catch (error) {
      if (!mine.abort.signal.aborted) {
        wrong.textContent = error.message;
        filter.setAttribute("aria-invalid", Boolean(error.list?.some((p) => p.key === "filter")));
      }
    } finally {
      running = null;
      button.textContent = "Record";
    }
  };
  const show = (m) => {
    const follow = scroll.scrollTop + scroll.clientHeight >= scroll.scrollHeight - 8;
    list.append(...(m.packets ?? []).map((p) => el("li", {}, line(p))));
    while (list.childElementCount > most) list.firstElementChild.remove();
    if (follow) scroll.scrollTop = scroll.scrollHeight;
    counts.textContent = `${count(m.recorded)} packets recorded, ${count(m.matched)} matched, ` +
      `${count(m.omitted)} of them not listed` + (m.ended ? `, ${count(m.lost ?? 0)} lost. Ended.` : ".");
    if (m.error) wrong.textContent = m.error;
  };
  const submit = (event) => {
    event.preventDefault();
    if (!running) start();
    // The server then ends the stream with the number of lost packets.
    else if (running.id) post("capture/stop", { id: running.id }).catch(stop);
    else stop();
  };
  return {
    stop,
    element: el("form", { class: "recorder", onsubmit: submit },
      el("h3", {}, "Packets"),
      el("p", { class: "tools" }, el("label", { for: "at" }, "At"), at),
      el("p", { class: "tools" }, el("label", { for: "display" }, "Filter"), filter, button),
      wrong, counts, scroll,
      el("p", { class: "note" }, `The latest ${most} packets, in the words of railbed decode. The recording ends ` +
        "when this panel or the page closes.")),
  };
}

/** Returns a packet's line, as railbed decode prints it. */
function line(p) {
  const tap = p.direction ? `${p.tap} ${p.direction}` : p.tap;
  return `${p.number} ${(p.since_ns / 1e9).toFixed(6)} ${tap} ${p.source} > ${p.destination} ${p.protocol} ` +
    `${p.length} ${p.info}` + (p.record ? ` [${p.record}]` : "");
}

/** Reads lines of JSON. */
async function* messages(body) {
  let rest = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const text of lines) yield JSON.parse(text);
  }
}
