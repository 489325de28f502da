# git envlog, git envdiff, git envrestore, and aliases of git for them: each is completed as the program it runs.
# Made by completions/build.py: do not edit

function __git_envhist_line
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]; and string match -q -- '-*' $words[1]
        contains -- $words[1] -C -c; and set -e words[1]
        set -e words[1]
    end
    set -q words[1]; or return 1
    if not string match -qr '^env(log|diff|restore)$' -- $words[1]
        set -l meant (command git config --get alias.$words[1] 2>/dev/null | string split -n ' ')
        string match -qr '^env(log|diff|restore)$' -- $meant[1]; or return 1
        set words $meant $words[2..-1]
    end
    string join ' ' -- git-$words[1] (string escape -- $words[2..-1]) (commandline -ct)
end

function __git_envhist_offers
    set -l line (__git_envhist_line); and complete -C "$line"
end

complete -c git -n '__git_envhist_line >/dev/null' -f -k -a '(__git_envhist_offers)'
complete -c git -n __fish_git_needs_command -f -a envlog -d 'read and keep the history of an environment'
complete -c git -n __fish_git_needs_command -f -a envdiff -d 'show what changed in the environment'
complete -c git -n __fish_git_needs_command -f -a envrestore -d 'restore an earlier environment'
