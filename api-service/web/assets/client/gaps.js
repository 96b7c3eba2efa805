// A histogram of the pauses between the text events of a stream, in the format of POST
// /v1/streams/{id}/seen. The service compares it with its own to detect proxies that collect
// tokens.

const bounds = [1, 5, 10, 25, 50, 100, 250, 500, 1000]; // ms; longer pauses are counted in one more bucket

const longest = 256; // maximum characters of a reported header

export class Gaps {
  #counts = new Array(bounds.length + 1).fill(0);
  #last;

  // take counts an event that arrived at time now, in ms.
  take(now) {
    if (this.#last !== undefined) {
      const shorter = bounds.findIndex((bound) => now - this.#last < bound);
      this.#counts[shorter < 0 ? bounds.length : shorter]++;
    }
    this.#last = now;
  }

  // report returns the body of the report for a response with these headers, or undefined if there
  // is nothing to report.
  report(headers) {
    if (this.#counts.every((n) => n === 0)) return undefined;
    const header = (name) => headers.get(name)?.slice(0, longest) ?? undefined;
    return JSON.stringify({ gaps: this.#counts, server: header('Server'), via: header('Via') });
  }
}
