package main

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// report is what a container was given, as seen from inside.
type report struct {
	Args     []string          `json:"args"`
	Devices  []string          `json:"devices"`
	Env      map[string]string `json:"env"`
	Files    map[string]string `json:"files"`
	Hostname string            `json:"hostname"`
	UID      int               `json:"uid"`
}

// runtimeDevices are in every container, whatever it asked for.
var runtimeDevices = []string{
	"/dev/console", "/dev/full", "/dev/null", "/dev/ptmx", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero",
}

// ownFileSystems under /dev hold no devices that someone could have asked for.
var ownFileSystems = []string{"/dev/mqueue", "/dev/pts", "/dev/shm"}

type stringList []string

func (list *stringList) String() string { return strings.Join(*list, ",") }

func (list *stringList) Set(value string) error {
	*list = append(*list, value)
	return nil
}

// writeReport writes the report as one line of JSON.
func writeReport(out io.Writer, globs []string) error {
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	files, err := readFiles(append([]string{attributesGlob}, globs...))
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(report{
		Args:     os.Args,
		Devices:  deviceNodes("/dev"),
		Env:      environment(),
		Files:    files,
		Hostname: hostname,
		UID:      os.Getuid(),
	})
}

func environment() map[string]string {
	values := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return values
}

// deviceNodes lists the device nodes under a folder that the container's runtime didn't put there by itself.
func deviceNodes(root string) []string {
	found := []string{}
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if entry.IsDir() && slices.Contains(ownFileSystems, path) {
			return fs.SkipDir
		}
		if entry.Type()&fs.ModeDevice != 0 && !slices.Contains(runtimeDevices, path) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// readFiles returns path and content of each file that a glob matches, or that is in a folder it matches.
// A file that can't be read is reported with its error, since that is what the pod would have met too.
func readFiles(globs []string) (map[string]string, error) {
	contents := map[string]string{}
	for _, glob := range globs {
		matches, err := filepath.Glob(glob)
		if err != nil {
			return nil, err
		}
		for _, match := range matches {
			readTree(match, contents)
		}
	}
	return contents, nil
}

func readTree(root string, contents map[string]string) {
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return nil
		}
		content, readErr := os.ReadFile(path)
		if err == nil {
			err = readErr
		}
		if err != nil {
			contents[path] = "error: " + err.Error()
			return nil
		}
		contents[path] = string(content)
		return nil
	})
}
