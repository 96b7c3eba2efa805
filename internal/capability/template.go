package capability

// Greeting is the user message whose prompt WorkerInfo.rendered holds.
const Greeting = "Hi"
