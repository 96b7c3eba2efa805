// Splits texts from stdin at the matches of expressions with the Rust library "tokenizers". A cut is a
// position in characters.
import { createRequire } from 'node:module'
import { resolve } from 'node:path'

const [packages] = process.argv.slice(1)
const { Tokenizer } = createRequire(resolve(packages, 'package.json'))('@anush008/tokenizers')
const chunks = []
for await (const chunk of process.stdin) chunks.push(chunk)

// A model whose only token is unknown has a token for each piece.
const splitter = (expression) => Tokenizer.fromString(JSON.stringify({
  version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null, post_processor: null, decoder: null,
  pre_tokenizer: { type: 'Split', pattern: { Regex: expression }, behavior: 'Isolated', invert: false },
  model: { type: 'WordLevel', vocab: { unknown: 0 }, unk_token: 'unknown' },
}))

const out = []
for (const { expression, texts } of JSON.parse(Buffer.concat(chunks))) {
  try {
    const tokenizer = splitter(expression)
    const cuts = []
    for (const text of texts) {
      cuts.push((await tokenizer.encode(text, null, { addSpecialTokens: false })).getOffsets().map(([, end]) => end))
    }
    out.push({ cuts })
  } catch (error) {
    out.push({ error: String(error) })
  }
}
process.stdout.write(JSON.stringify(out))
