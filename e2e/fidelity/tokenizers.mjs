// Encodes texts and decodes ids from stdin with the Rust library "tokenizers".
import { createRequire } from 'node:module'
import { resolve } from 'node:path'

const [packages, file] = process.argv.slice(1)
const { Tokenizer } = createRequire(resolve(packages, 'package.json'))('@anush008/tokenizers')
const chunks = []
for await (const chunk of process.stdin) chunks.push(chunk)
const { texts, ids } = JSON.parse(Buffer.concat(chunks))

const tokenizer = Tokenizer.fromFile(file)
const decoder = new TextDecoder('utf-8', { ignoreBOM: true }) // a U+FFFD for each maximal subpart, like from_utf8_lossy
const out = { texts: [], ids: [] }
for (const bytes of texts) {
  const text = decoder.decode(Buffer.from(bytes, 'base64'))
  const plain = (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds()
  const framed = (await tokenizer.encode(text, null, { addSpecialTokens: true })).getIds()
  out.texts.push({ plain, framed, decoded: await tokenizer.decode(plain, false) })
}
for (const list of ids) {
  out.ids.push({ all: await tokenizer.decode(list, false), unspecial: await tokenizer.decode(list, true) })
}
process.stdout.write(JSON.stringify(out))
