// Elements without markup: what a server or a model says becomes text or an attribute, never HTML.

const svg = 'http://www.w3.org/2000/svg';

// node returns an element. Attributes that are null, undefined or false are left out; children that are none, too.
export function node(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// drawn is node for SVG.
export function drawn(name, attributes, ...children) {
  return fill(document.createElementNS(svg, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false && child !== ''));
  return element;
}
