// Command pod is the only program in the harness's pod image. A pod says, on one line of JSON, what it
// was given (environment, devices, files), and then does what its arguments ask for.
//
//	pod [flags]          report, then wait to be stopped, or end as the flags say
//	pod report [flags]   report and exit 0; for `kubectl exec`
//	pod pause            say nothing and wait; the sandbox container
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	attributesGlob = "/var/run/kubernetes.io/dra-device-attributes"
	fileCheck      = 20 * time.Millisecond
)

type options struct {
	files    stringList
	exitCode int
	exit     bool
	after    time.Duration
	waitFile string
}

func main() {
	arguments := os.Args[1:]
	command := ""
	if len(arguments) > 0 && (arguments[0] == "report" || arguments[0] == "pause") {
		command, arguments = arguments[0], arguments[1:]
	}
	// Registered before anything is reported: whoever has read the report may send the signal.
	stopped := stopSignals()
	if command == "pause" {
		<-stopped
		return
	}
	options := parse(arguments)
	if err := writeReport(os.Stdout, options.files); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
	if command == "report" {
		return
	}
	os.Exit(wait(options, stopped))
}

func parse(arguments []string) options {
	var parsed options
	flags := flag.NewFlagSet("pod", flag.ExitOnError)
	flags.Var(&parsed.files, "file", "also report the content of files matching this `glob`; may be repeated")
	flags.IntVar(&parsed.exitCode, "exit", 0, "exit with this `code`: after the report, or when the other flags say")
	flags.DurationVar(&parsed.after, "exit-after", 0, "exit this long after the report")
	flags.StringVar(&parsed.waitFile, "wait-file", "", "exit as soon as this `path` exists")
	_ = flags.Parse(arguments)
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "pod: unexpected argument %q; flags, `report` and `pause` are all it knows\n", flags.Arg(0))
		os.Exit(2)
	}
	flags.Visit(func(set *flag.Flag) { parsed.exit = parsed.exit || set.Name == "exit" })
	return parsed
}

// wait returns the exit code once the pod is to end: 0 for a signal.
func wait(options options, stopped <-chan struct{}) int {
	if options.exit && options.after == 0 && options.waitFile == "" {
		return options.exitCode
	}
	var elapsed <-chan time.Time
	if options.after > 0 {
		elapsed = time.After(options.after)
	}
	var look <-chan time.Time
	if options.waitFile != "" {
		look = time.Tick(fileCheck)
	}
	for {
		select {
		case <-stopped:
			return 0
		case <-elapsed:
			return options.exitCode
		case <-look:
			if _, err := os.Stat(options.waitFile); err == nil {
				return options.exitCode
			}
		}
	}
}

// stopSignals returns a channel that is closed by SIGTERM or SIGINT. Children left to PID 1 are reaped.
func stopSignals() <-chan struct{} {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	stopped := make(chan struct{})
	go func() {
		for received := range signals {
			if received != syscall.SIGCHLD {
				close(stopped)
				return
			}
			reap()
		}
	}()
	return stopped
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}
