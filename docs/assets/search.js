// SPDX-License-Identifier: Apache-2.0
// Messages as queries of the search. Its engine, lunr, reads `:`, `*`, `+`, `-`, `~` and `^` as operators, and MkDocs Material appends a
// wildcard to each word, so that `a` finds every word that begins with it. This script wraps the search's Worker. A query loses the operators;
// one of more than three words also loses its numbers and quotes, and its short words lose the wildcard. If it shares three pairs of neighbouring
// words with a message of errors.md, that entry comes first.
const wordsOf = (text) => text.replace(/<[^>]*>|&\w+;/g, " ").toLowerCase().match(/[a-z_]\w+/g) ?? [];
const pairsOf = (words) => new Set(words.slice(1).map((word, i) => words[i] + " " + word));

const queryOf = (text) => {
  const words = text.replace(/[:*~^+]|(?<!\w)-+/g, " ").trim().split(/\s+/);
  if (words.length <= 3) return words.join(" ");
  return wordsOf(text).filter((word) => word !== "weft").map((word) => (word.length > 3 ? word : word + "^1")).join(" ");  // a boost excludes a wildcard
};

window.Worker = class extends window.Worker {
  constructor(url) {
    super(url);
    this.messages = [];  // of errors.md: [location, pairs]
    this.addEventListener("message", ({ data }) => data.data?.items && this.first(data.data.items));
  }

  postMessage(message) {
    const { data } = message;
    if (data?.docs) {
      const entries = data.docs.filter(({ location }) => location.startsWith("errors.html#message-"));
      this.messages = entries.flatMap(({ location, title }) => title.split(/<\/code>[,\s]/).map((text) => [location, pairsOf(wordsOf(text))]));
    }
    if (typeof data !== "string") return super.postMessage(message);
    const pairs = pairsOf(wordsOf(data));
    const shared = this.messages.map(([location, theirs]) => ({ location, count: [...theirs].filter((pair) => pairs.has(pair)).length, all: theirs.size }));
    this.best = shared.filter(({ count, all }) => count >= 3 || (all === 2 && count === 2)).sort((a, b) => b.count - a.count || a.all - b.all)[0]?.location;
    super.postMessage({ ...message, data: queryOf(data) });
  }

  // Moves the best entry to the front of the results, which are lists of places, one for each page.
  first(items) {
    const page = items.findIndex((places) => places.some(({ location }) => location === this.best));
    if (page < 0) return;
    const [places] = items.splice(page, 1);
    const [entry] = places.splice(places.findIndex(({ location }) => location === this.best), 1);
    items.unshift([{ ...entry, score: Infinity }, ...places]);
  }
};
