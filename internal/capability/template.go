package capability

// Greeting is the message of the user in the conversation of WorkerInfo.rendered, the only one.
const Greeting = "Hi"
