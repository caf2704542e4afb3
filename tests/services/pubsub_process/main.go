// The process of the Pub/Sub server: Google's own in-memory one behind a port of this machine, until it is told to end.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	server := pstest.NewServerWithAddress("127.0.0.1:" + os.Args[1])
	defer server.Close()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
}
