// Announcements of an answer for screen readers. The visible text changes many times a second, so
// it is not a live region. This hidden region is: it gets whole sentences as they are completed,
// then the ending.

const keep = 4; // older sentences leave the region, so that no screen reader reads the answer twice
const longest = 200; // text without an end of sentence is cut at a space

export class Announcer {
  #region;
  #text = '';

  constructor(region) {
    this.#region = region;
  }

  // add adds a piece of the answer.
  add(text) {
    this.#text += text;
    for (let end; (end = sentenceEnd(this.#text)) > 0;) {
      this.say(this.#text.slice(0, end));
      this.#text = this.#text.slice(end);
    }
  }

  // end announces the rest of the answer, then the ending.
  end(ending) {
    this.say(this.#text);
    this.#text = '';
    this.say(ending);
  }

  // say announces a text.
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
