package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/whence-dev/whence/client"
)

func Example() {
	ctx := context.Background()
	whence, err := client.New("http://127.0.0.1:8080", client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	stream, err := whence.Stream(ctx, client.Request{
		Model:    "whence-tiny",
		Messages: []client.Message{{Role: "user", Content: "What is Whence?"}},
		Leave:    "linger:30s", // how long the stream waits for a reader
	})
	if err != nil {
		log.Fatal(err) // a *client.Error, as all errors are
	}
	for event, err := range stream.Events(ctx) {
		if err != nil {
			log.Fatal(err) // such as "peer lost: ... [llm-worker/0 > chat-service > api-service]"
		}
		fmt.Print(event.Text)
	}
	fmt.Println(stream.Ending().Finish, stream.Ending().Usage.Total)
}
