// A stream's life: the picture of its hops, the latency that the browser measured, and the numbers of both.

import { lanes } from './lanes.js';
import { node } from './node.js';
import { draw, kinds, legend, symbol } from './picture.js';
import { plot } from './plot.js';
import { latency } from './seen.js';
import { duration } from './words.js';

const often = 100; // minimum time between two drawings, in milliseconds

export class Life {
  #story = null;
  #least = 0;
  #seen;
  #zoomed = false;
  #onZoom;
  #timer = 0;
  #canvas = node('div', { class: 'canvas' });
  #plot = node('div', { class: 'canvas' });
  #numbers = node('dl', { class: 'numbers' });
  #legend = node('p', { class: 'legend' });
  #whole = node('button', { type: 'button', 'aria-pressed': 'true' }, 'Whole');
  #ending = node('button', { type: 'button', 'aria-pressed': 'false', disabled: true }, 'Ending');
  #latency;

  // zoomed shows only the ending, once there is one. onZoom is called when the reader chooses.
  constructor(seen, { zoomed = false, onZoom = () => {} } = {}) {
    this.#mark(zoomed);
    this.#onZoom = onZoom;
    this.#seen = seen;
    this.#latency = node('div', { class: 'latency', hidden: !seen }, node('h3', {}, 'Between tokens, as this browser sees it'), this.#plot, this.#numbers);
    this.node = node('figure', { class: 'picture' },
      node('figcaption', {}, node('span', {}, 'Timeline, hop by hop'),
        node('span', { class: 'segments', role: 'group', 'aria-label': 'Range of the timeline' }, this.#whole, this.#ending)),
      this.#canvas, this.#legend, this.#latency);
    this.#whole.addEventListener('click', () => this.#zoom(false));
    this.#ending.addEventListener('click', () => this.#zoom(true));
    new ResizeObserver(() => this.#draw()).observe(this.#canvas);
  }

  // tell updates the story of the stream. least is the minimum length of the time scale, in ms, for
  // timelines that are compared.
  tell(story, least = 0) {
    this.#story = story;
    this.#least = least;
    this.#draw();
  }

  // change redraws after the browser has received more. Changes in quick succession are drawn once.
  change() {
    this.#timer ||= setTimeout(() => this.#draw(), often);
  }

  #zoom(on) {
    this.#mark(on);
    this.#onZoom(on);
    this.#draw();
  }

  #mark(on) {
    this.#zoomed = on;
    this.#whole.setAttribute('aria-pressed', String(!on));
    this.#ending.setAttribute('aria-pressed', String(on));
  }

  #draw() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const width = this.#canvas.clientWidth;
    if (width < 50) return; // not on the page
    const picture = lanes(this.#story, this.#seen);
    this.#ending.disabled = !picture.ending;
    const part = this.#zoomed && picture.ending ? picture.ending : [0, Math.max(picture.to, this.#least)];
    const names = picture.lanes.map(({ name }) => name).join(', ');
    this.#canvas.replaceChildren(draw(picture, part, width, `Messages of ${names || 'no hop yet'}, over ${duration(part[1] - part[0])}`));
    const there = kinds(picture);
    this.#legend.replaceChildren(...legend.filter(([kind]) => there.has(kind)).map(([kind, text]) => node('span', {}, symbol(kind), text)));
    if (this.#seen) this.#drawLatency(picture.to);
  }

  #drawLatency(to) {
    const { frames, opened, resumed } = this.#seen;
    const measured = latency(frames);
    if (measured && opened === resumed[0]) measured.ttft = undefined; // another page has seen the first token
    this.#plot.replaceChildren(plot(frames, measured, to, this.#canvas.clientWidth));
    const shown = [
      ['TTFT', duration(measured?.ttft)], ['p50', duration(measured?.p50)], ['p95', duration(measured?.p95)], ['max', duration(measured?.max)],
      ['frames/s', measured?.rate === undefined ? '–' : measured.rate.toFixed(measured.rate < 10 ? 1 : 0)],
    ];
    this.#numbers.replaceChildren(...shown.map(([name, value]) => node('div', {}, node('dt', {}, name), node('dd', {}, value))));
  }
}
