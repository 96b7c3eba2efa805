// A parser of the event-stream grammar of the HTML standard: bytes in, events out, wherever the
// bytes are split.

// Limit of one unfinished event, in characters; above it push throws.
const maxEvent = 4 << 20;

export class Parser {
  #decoder = new TextDecoder(); // keeps incomplete UTF-8, drops a byte order mark
  #line = ''; // the unfinished line
  #skipLF = false; // the last line ended with CR: an LF that follows belongs to it
  #id = ''; // persists: the next event without an id has this id, too
  #event = '';
  #data = [];
  #size = 0; // characters in #data

  // The last `retry:`, in ms; undefined if there was none.
  retry;

  // push returns the events that these bytes complete, each {id, event, data}. An event that the
  // end of the connection cuts off is dropped, as the standard demands.
  push(bytes) {
    const events = [];
    let text = this.#decoder.decode(bytes, { stream: true });
    if (text === '') return events;
    if (this.#skipLF && text[0] === '\n') text = text.slice(1);
    this.#skipLF = text.endsWith('\r');

    const lines = text.split(/\r\n|\r|\n/);
    lines[0] = this.#line + lines[0];
    this.#line = lines.pop();
    for (const line of lines) this.#take(line, events);
    if (this.#line.length + this.#size > maxEvent) throw new RangeError(`an event has more than ${maxEvent} characters`);
    return events;
  }

  #take(line, events) {
    if (line === '') {
      if (this.#data.length > 0) events.push({ id: this.#id, event: this.#event || 'message', data: this.#data.join('\n') });
      this.#event = '';
      this.#data = [];
      this.#size = 0;
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return; // a comment
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value[0] === ' ') value = value.slice(1);
    switch (field) {
      case 'data':
        this.#data.push(value);
        this.#size += value.length + 1;
        break;
      case 'event':
        this.#event = value;
        break;
      case 'id':
        if (!value.includes('\0')) this.#id = value;
        break;
      case 'retry':
        if (/^[0-9]+$/.test(value)) this.retry = Number(value);
        break;
    }
  }
}
