// Making elements, and nothing else.

/**
 * An element. Attributes that are false, null or undefined are left out; `on…` are listeners.
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** The same for pictures. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function clock(seconds, { fine = false } = {}) {
  const date = new Date(seconds * 1000);
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  const text = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  return fine ? `${text}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}` : text;
}
