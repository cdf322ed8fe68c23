package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/jetstream/embedded"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// One turn: asked for, run by a worker that streams its events, and read by the
// one who asked.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "turnpool")
	check(err)
	defer os.RemoveAll(dir)
	server, err := embedded.Start(embedded.Config{StoreDir: dir, DontListen: true})
	check(err)
	defer server.Shutdown()
	client, err := jetstream.Connect(ctx, jetstream.Config{Options: []nats.Option{server.ConnectOption()}})
	check(err)
	defer client.Close()

	id := turn.NewInvocationID()
	reader, err := client.Watch(ctx, turn.DefaultTenant, id)
	check(err)
	defer reader.Close()
	check(client.Publish(ctx, &turn.Submission{
		Tenant: turn.DefaultTenant, InvocationID: id, Pool: "default",
		Request: turn.Request{
			Agent: "echo", SessionID: turn.NewSessionID(),
			Input: turn.Input{Message: turn.Text("hello")},
		},
	}))

	work(ctx, client)

	for {
		frames, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
		for _, f := range frames {
			fmt.Println(f.Seq, f.Type)
		}
	}
	// Output:
	// run hello
	// 1 assistant
	// 2 result
}

// work is a worker that runs one turn.
func work(ctx context.Context, client *jetstream.Client) {
	consumer, err := client.Consumer(ctx, "default")
	check(err)
	defer consumer.Close()
	pull := consumer.Pull(ctx, turn.LaneInteractive, 1, time.Minute)
	for delivery := range pull.C() {
		submission, err := delivery.Submission()
		check(err)
		text := submission.Request.Input.Message.Text
		fmt.Println("run", text)

		// A turn that was delivered before would start with what its log says.
		log := client.Writer(ctx, submission.Tenant, submission.InvocationID, 1, turn.LogState{})
		log.Emit(&session.Assistant{Text: text})
		log.Emit(&turn.Result{InvocationID: submission.InvocationID, Status: session.StatusCompleted})
		check(log.Flush(ctx))
		check(delivery.Ack())
	}
	check(pull.Err())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
