// Command node-init is process 1 of a simulated machine: the PID and mount namespace (and whichever others)
// in which one node's container runtime and kubelet run. It is started as
//
//	unshare --mount --pid --fork --kill-child --propagation private -- \
//	    node-init --proc --bind SOURCE=TARGET ... --ready FILE
//
// and processes join it with `nsenter --target PID --mount --pid`. It prepares the mounts, creates FILE,
// and then reaps what is left to it until SIGTERM, on which it ends every process of the node. Nothing that it
// mounts is seen outside, and the kernel removes all of it with the last process.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	grace     = 2 * time.Second
	aliveTick = 20 * time.Millisecond
)

type bind struct{ source, target string }

type bindList []bind

func (list *bindList) String() string { return fmt.Sprint(*list) }

func (list *bindList) Set(value string) error {
	source, target, found := strings.Cut(value, "=")
	if !found || source == "" || target == "" {
		return fmt.Errorf("expected SOURCE=TARGET")
	}
	*list = append(*list, bind{source, target})
	return nil
}

func main() {
	var binds bindList
	flag.Var(&binds, "bind", "mount SOURCE over TARGET (`SOURCE=TARGET`); may be repeated, done in this order")
	proc := flag.Bool("proc", false, "mount a proc file system of this PID namespace on /proc")
	ready := flag.String("ready", "", "create this `file` when all mounts are done")
	flag.Parse()
	if err := run(binds, *proc, *ready, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "node-init:", err)
		os.Exit(1)
	}
}

func run(binds bindList, proc bool, ready string, rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if os.Getpid() != 1 {
		return fmt.Errorf("is process %d, and must be 1 of a PID namespace of its own: it signals all it can see", os.Getpid())
	}
	signal.Ignore(syscall.SIGHUP)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	if err := prepareMounts(binds, proc); err != nil {
		return err
	}
	if ready != "" {
		if err := os.WriteFile(ready, nil, 0o600); err != nil {
			return err
		}
	}
	for received := range signals {
		if received != syscall.SIGCHLD {
			return endAll()
		}
		reap()
	}
	return nil
}

func prepareMounts(binds bindList, proc bool) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for _, bind := range binds {
		for _, path := range []string{bind.source, bind.target} {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("--bind %s=%s: %w", bind.source, bind.target, err)
			}
		}
		if err := syscall.Mount(bind.source, bind.target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return fmt.Errorf("--bind %s=%s: %w", bind.source, bind.target, err)
		}
	}
	if proc {
		if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mounting /proc: %w", err)
		}
	}
	return nil
}

// endAll ends every other process of the namespace: politely first, for at most the grace period.
func endAll() error {
	_ = syscall.Kill(-1, syscall.SIGTERM)
	for deadline := time.Now().Add(grace); time.Now().Before(deadline); time.Sleep(aliveTick) {
		if reap(); syscall.Kill(-1, 0) == syscall.ESRCH {
			return nil
		}
	}
	if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("killing what is left: %w", err)
	}
	return nil
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}
