// Command worker takes turns from the queue and runs them. Its settings come from
// the environment; the README lists them.
package main

import (
	"os"

	"github.com/turnpool/turnpool/cmd/internal/process"
)

func main() { os.Exit(process.Main("worker", process.RunWorker)) }
