// What screen readers hear of an answer. The visible text changes many times a second, so it is not a live region;
// this hidden one is, and gets whole sentences as they are complete, then the ending.

const keep = 4; // older sentences leave the region, so that nobody reads the answer twice
const longest = 200; // text without an end of sentence is cut at a space

export class Announcer {
  #region;
  #text = '';

  constructor(region) {
    this.#region = region;
  }

  // add hears more of the answer.
  add(text) {
    this.#text += text;
    for (let end; (end = sentenceEnd(this.#text)) > 0;) {
      this.say(this.#text.slice(0, end));
      this.#text = this.#text.slice(end);
    }
  }

  // end says what is left, then the ending.
  end(ending) {
    this.say(this.#text);
    this.#text = '';
    this.say(ending);
  }

  // say announces a text of its own.
  say(text) {
    if (!text.trim()) return;
    const line = document.createElement('p');
    line.textContent = text;
    this.#region.append(line);
    while (this.#region.childElementCount > keep) this.#region.firstElementChild.remove();
  }

  clear() {
    this.#text = '';
    this.#region.replaceChildren();
  }
}

function sentenceEnd(text) {
  const match = /[.!?。！？]["'”’)]*\s|\n/.exec(text);
  if (match) return match.index + match[0].length;
  return text.length > longest ? text.lastIndexOf(' ') + 1 || text.length : 0;
}
