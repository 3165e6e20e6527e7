// Elements and formats. All text reaches the page as text nodes: nothing here parses HTML.

/** Makes an element. Properties whose name begins with "on" are listeners. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Sets the text of an element if it differs, so that a selection in it stays. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Formats a number with a unit that leaves at most three digits before the point. */
function scaled(n, units, base) {
  let i = 0;
  for (; n >= base && i < units.length - 1; i++) n /= base;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(n >= 10 ? 1 : 2)} ${units[i]}`;
}

export const bits = (n) => scaled(n, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"], 1000);
export const bytes = (n) => scaled(n, ["B", "kB", "MB", "GB", "TB"], 1000);
export const count = (n) => n.toLocaleString("en");
export const percent = (share) => `${share > 0 && share < 0.01 ? "<1" : Math.round(100 * share)} %`;

export const time = (text) => {
  const at = new Date(text);
  return at.toLocaleTimeString("en-GB") + "." + String(at.getMilliseconds()).padStart(3, "0");
};

/** Sends JSON and returns the answer, or throws its problems. */
export async function post(path, body, options = {}) {
  const response = await fetch(path, { method: "POST", body: JSON.stringify(body), ...options });
  if (!response.ok) throw await problems(response);
  return response;
}

export async function get(path) {
  const response = await fetch(path);
  if (!response.ok) throw await problems(response);
  return response.json();
}

/** Problems is an error with a text for each field of a form. */
export class Problems extends Error {
  constructor(list) {
    super(list.map((p) => p.text).join("\n"));
    this.list = list;
  }
}

async function problems(response) {
  const text = await response.text();
  try {
    return new Problems(JSON.parse(text).problems);
  } catch {
    return new Problems([{ text: text || response.statusText }]);
  }
}
