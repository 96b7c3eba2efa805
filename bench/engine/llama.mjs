// Measures llama.cpp as whence.go measures the embedded engine; prints tokens per second as JSON.
import { getLlama } from 'node-llama-cpp'

const [gguf, threads, answer, prompt] = [process.argv[2], ...process.argv.slice(3).map(Number)]
const streams = 8
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error', maxThreads: threads })
const model = await llama.loadModel({ modelPath: gguf })
const context = await model.createContext({ contextSize: 1024, sequences: streams, threads, batchSize: 512 })
const sequences = Array.from({ length: streams }, () => context.getSequence())
const tokens = (n) => Array.from({ length: n }, (_, i) => 1000 + ((i * 7919) % 100000))

// decode returns the tokens per second after the first token of the last stream that begins.
async function decode(n) {
  let waiting = n
  let begin
  const all = new Promise((resolve) => (begin = resolve))
  let at
  await Promise.all(
    sequences.slice(0, n).map(async (sequence, i) => {
      await sequence.clearHistory()
      let read = 0
      for await (const _ of sequence.evaluate(tokens(8 + i), { temperature: 0, yieldEogToken: true })) {
        if (++read === 1) {
          if (--waiting === 0) {
            at = performance.now()
            begin()
          }
          await all
        }
        if (read === answer) break
      }
    })
  )
  return (n * (answer - 1) * 1000) / (performance.now() - at)
}

async function prefill() {
  await sequences[0].clearHistory()
  const at = performance.now()
  for await (const _ of sequences[0].evaluate(tokens(prompt), { temperature: 0, yieldEogToken: true })) break
  return (prompt * 1000) / (performance.now() - at)
}

await decode(1) // warms the caches up
process.stdout.write(JSON.stringify({ decode1: await decode(1), decode8: await decode(streams), prefill: await prefill() }) + '\n', () => process.exit(0)) // the library keeps threads
