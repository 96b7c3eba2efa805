// The chats of this browser: the last conversations, in its local storage. A chat is {id, began,
// turns}. A turn is {question, answer, thought, called, model, id, kind, line, retried, asked,
// resumed}, and open until its stream has ended: see chat.js.

// stored is the name under which the storage has the chats.
export const stored = 'whence-chats';
const most = 20; // chats that are kept; the oldest ones are dropped
const room = 1 << 18; // characters of all chats together; then also the oldest turns of the last chat are dropped

// Storage can be blocked or full: the chats are then gone with the page.
function read(storage) {
  try {
    const all = JSON.parse(storage().getItem(stored) ?? '[]');
    return Array.isArray(all) ? all.filter((chat) => typeof chat?.id === 'string' && Array.isArray(chat.turns)) : [];
  } catch {
    return [];
  }
}

export class Chats {
  #storage;

  constructor(storage = () => localStorage) {
    this.#storage = storage;
  }

  // list returns the chats, the last one first.
  list() {
    return read(this.#storage);
  }

  find(id) {
    return this.list().find((chat) => chat.id === id);
  }

  // keep stores a chat as the last one.
  keep(chat) {
    if (chat.turns.length === 0) return;
    this.#write(fit([chat, ...this.list().filter(({ id }) => id !== chat.id)]));
  }

  clear() {
    this.#write([]);
  }

  #write(chats) {
    try {
      if (chats.length === 0) this.#storage().removeItem(stored);
      else this.#storage().setItem(stored, JSON.stringify(chats));
    } catch {
      // as above
    }
  }
}

// fit drops what is beyond the bounds.
export function fit(chats) {
  const kept = [];
  let left = room;
  for (const chat of chats.slice(0, most)) {
    const turns = [];
    for (const turn of chat.turns.toReversed()) {
      const size = JSON.stringify(turn).length;
      if (size > left) break;
      left -= size;
      turns.unshift(turn);
    }
    if (turns.length < chat.turns.length && kept.length > 0) break;
    kept.push({ ...chat, turns });
  }
  return kept.filter(({ turns }) => turns.length > 0);
}

// messagesOf returns the messages of a chat. A turn without an answer would leave two consecutive
// questions, which chat templates refuse, and a refused question would be refused again; a retried
// turn is in the chat twice. So neither is sent.
export function messagesOf({ turns }) {
  return turns.filter(({ answer, retried }) => answer && !retried)
    .flatMap(({ question, answer }) => [{ role: 'user', content: question }, { role: 'assistant', content: answer }]);
}
