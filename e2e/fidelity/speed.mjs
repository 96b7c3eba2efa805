// Measures the Rust library "tokenizers" and the JavaScript library on texts from stdin; answers in
// MB/s.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'

const [packages, file] = process.argv.slice(1)
const require = createRequire(resolve(packages, 'package.json'))
const rust = require('@anush008/tokenizers').Tokenizer.fromFile(file)
const { Tokenizer } = require('@huggingface/tokenizers')
const js = new Tokenizer(JSON.parse(readFileSync(file)), {})
const chunks = []
for await (const chunk of process.stdin) chunks.push(chunk)

// Like the measurement of our tokenizer: the best of some rounds over all texts, one after the
// other.
const time = async (texts, rounds, encode) => {
  const size = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
  let best = 0
  for (let i = 0; i < rounds; i++) {
    const begun = performance.now()
    for (const text of texts) await encode(text)
    best = Math.max(best, size / 1e3 / (performance.now() - begun))
  }
  return best
}
const out = {}
const { rounds, texts } = JSON.parse(Buffer.concat(chunks))
for (const [kind, list] of Object.entries(texts)) {
  out[kind] = {
    rust: await time(list, rounds, async (text) => (await rust.encode(text, null, { addSpecialTokens: false })).getIds()),
    js: await time(list, rounds, (text) => js.encode(text, { add_special_tokens: false })),
  }
}
process.stdout.write(JSON.stringify(out))
