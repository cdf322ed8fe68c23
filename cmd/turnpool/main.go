// Command turnpool runs the whole system in one process, for development, and has
// the commands of those who operate one.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// commands is the command line.
type commands struct {
	Dev     devCommand     `cmd:"" help:"Run everything in this process: ingress, worker, embedded NATS and SQLite."`
	Migrate migrateCommand `cmd:"" help:"Bring the tables of DATABASE_URL up to date."`
	Agents  agentsCommand  `cmd:"" help:"Check agents files."`
}

// run parses the arguments and runs a command until it ends or ctx does. It
// returns the process's exit code: 0, 1 when the command failed, 2 when the
// arguments are wrong.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	var cli commands
	exited := -1
	parser := kong.Must(&cli, kong.Name("turnpool"),
		kong.Description("A worker pool for agent turns. The README has every setting; they come from the environment."),
		kong.Writers(stdout, stderr), kong.Exit(func(code int) { exited = code }), kong.UsageOnError())
	command, err := parser.Parse(args)
	if exited >= 0 { // --help has been answered
		return exited
	}
	if err != nil {
		fmt.Fprintln(stderr, "turnpool:", err)
		return 2
	}
	command.BindTo(ctx, (*context.Context)(nil))
	if err := command.Run(output{stdout, stderr}); err != nil {
		fmt.Fprintln(stderr, "turnpool:", err)
		return 1
	}
	return 0
}

// output is where a command writes: what it is asked for, and its log.
type output struct{ stdout, stderr io.Writer }
