// Elements without markup: text from a server or a model becomes a text node or an attribute, never
// HTML.

const svg = 'http://www.w3.org/2000/svg';

// node returns an element. It leaves out attributes and children that are null, undefined or false.
export function node(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// drawn is node for SVG.
export function drawn(name, attributes, ...children) {
  return fill(document.createElementNS(svg, name), attributes, children);
}

// refill replaces the children of an element. The link that had the focus keeps it if it is there
// again.
export function refill(place, ...children) {
  const focused = place.contains(document.activeElement) && document.activeElement.getAttribute('href');
  place.replaceChildren(...children);
  if (focused) place.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false && child !== ''));
  return element;
}
