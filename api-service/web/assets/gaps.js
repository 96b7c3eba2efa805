// The pauses between the events of a stream that have text, counted as POST /v1/streams/{id}/seen takes them: by comparing them with
// its own, the service finds proxies that collect tokens.

const bounds = [1, 5, 10, 25, 50, 100, 250, 500, 1000]; // ms; longer ones are counted behind the last

const longest = 256; // characters of a header that are passed on

export class Gaps {
  #counts = new Array(bounds.length + 1).fill(0);
  #last;

  // take counts an event that came at this time, in ms.
  take(now) {
    if (this.#last !== undefined) {
      const shorter = bounds.findIndex((bound) => now - this.#last < bound);
      this.#counts[shorter < 0 ? bounds.length : shorter]++;
    }
    this.#last = now;
  }

  // report returns the body that tells what was seen, of a response with these headers; undefined if there is nothing to tell.
  report(headers) {
    if (this.#counts.every((n) => n === 0)) return undefined;
    const header = (name) => headers.get(name)?.slice(0, longest) ?? undefined;
    return JSON.stringify({ gaps: this.#counts, server: header('Server'), via: header('Via') });
  }
}
