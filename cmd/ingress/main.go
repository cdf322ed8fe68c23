// Command ingress serves HTTP: it takes turns in, relays their events, and answers
// for them. Its settings come from the environment; the README lists them.
package main

import (
	"os"

	"github.com/turnpool/turnpool/cmd/internal/process"
)

func main() { os.Exit(process.Main("ingress", process.RunIngress)) }
